"""Memory of arrays, whatever library they are of.

NumPy arrays and scalars, anything with the buffer protocol (``array.array``, ``bytearray``, ``memoryview``,
``ctypes`` arrays), anything with DLPack in the memory of the host, JAX arrays, and Python's numbers.
No library is imported here before an array of it is seen. A library of tensors adds its own :class:`Family`
by :func:`register`.
"""

from .family import Family, family_of, register
from .memory import Memory

__all__ = ["Family", "Memory", "family_of", "register"]
