"""The interface to an array library, and the choice of the library for an array."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from .memory import Memory

__all__ = ["Family", "family_of", "register"]


class Family(Protocol):
    """Access to arrays of one library. Memory is always contiguous host memory in the host's byte order."""

    def memory(self, array: Any) -> Memory | None:
        """The memory of ``array`` itself, for reading; None if it is not contiguous."""

    def writable(self, array: Any) -> bool:
        """Whether the memory of ``array`` may be changed in place."""

    def copy(self, array: Any) -> Any:
        """A contiguous copy in host memory, which may be changed in place and read with :meth:`memory`."""

    def empty(self, like: Any, shape: tuple[int, ...]) -> Any:
        """Like :meth:`copy`, with another shape and uninitialised elements."""

    def result(self, filled: Any, like: Any) -> Any:
        """Converts an array of :meth:`copy` or :meth:`empty` to a result for the user, of the type of ``like``."""

    def assign(self, array: Any, source: Any) -> None:
        """Copies the elements of ``source``, an array of :meth:`copy`, into ``array``."""


_FAMILIES: dict[type, Family] = {}


def register(kind: type, family: Family) -> None:
    """Registers ``family`` for arrays of type ``kind`` and its subclasses."""
    _FAMILIES[kind] = family


def family_of(array: object) -> Family:
    """The family of ``array``.

    Raises:
        TypeError: ``array`` is not an array.
    """
    kind = type(array)
    family = _FAMILIES.get(kind)
    if family is None:
        family = _inherited(kind) or _found(array)
        _FAMILIES[kind] = family
    return family


def _inherited(kind: type) -> Family | None:
    return next((_FAMILIES[base] for base in kind.__mro__ if base in _FAMILIES), None)


def _found(array: object) -> Family:
    _refuse_tracer(array)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, (numpy.ndarray, numpy.generic)):
        from .numpy_arrays import NumpyFamily

        return NumpyFamily()
    root = type(array).__module__.partition(".")[0]
    if root in ("jax", "jaxlib") and hasattr(array, "sharding"):
        from .jax_arrays import JaxFamily

        return JaxFamily()
    if isinstance(array, (int, float)):
        from .numbers import NumberFamily

        return NumberFamily()
    if hasattr(array, "__dlpack__"):
        from .dlpack import DlpackFamily

        return DlpackFamily()
    from .buffers import BufferFamily

    if BufferFamily.takes(array):
        return BufferFamily()
    raise TypeError(
        f"{type(array).__qualname__} is no array: NumPy arrays, numbers, and objects with the buffer protocol or"
        " DLPack are"
    )


def _refuse_tracer(array: object) -> None:
    """Raises TypeError for what stands for an array while JAX traces a function. It has no memory."""
    tracer = getattr(sys.modules.get("jax.core"), "Tracer", None)
    if tracer is not None and isinstance(array, tracer):
        raise TypeError(
            f"{type(array).__qualname__} is no array: JAX compiles, differentiates or maps this function. Call the collective"
            " by jax.experimental.io_callback(lambda x: elasticrun.allreduce(numpy.asarray(x)),"
            " jax.ShapeDtypeStruct(x.shape, x.dtype), x, ordered=True), outside of jax.grad and jax.vmap: docs/python.md#jax"
        )
