"""Access to the memory of arrays of any library.

Supported are NumPy arrays and scalars, objects with the buffer protocol (``array.array``, ``bytearray``, ``memoryview``,
``ctypes`` arrays), objects with DLPack in host memory, JAX arrays, and Python numbers. A library is imported only when one of
its arrays is passed. Other tensor libraries add a :class:`Family` with :func:`register`.
"""

from .family import Family, family_of, register
from .memory import Memory

__all__ = ["Family", "Memory", "family_of", "register"]
