"""Which library an array is of, and what is asked of each."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from .memory import Memory

__all__ = ["Family", "family_of", "register"]


class Family(Protocol):
    """Arrays of one library. Memory is always that of the host, contiguous, in the host's byte order."""

    def memory(self, array: Any) -> Memory | None:
        """The memory of ``array`` itself, to be read; none if it is not contiguous."""

    def writable(self, array: Any) -> bool:
        """Whether the memory of ``array`` may be changed in place."""

    def copy(self, array: Any) -> Any:
        """A contiguous copy in the host's memory, to be changed in place and read by :meth:`memory`."""

    def empty(self, like: Any, shape: tuple[int, ...]) -> Any:
        """As :meth:`copy`, with another shape and any elements."""

    def result(self, filled: Any, like: Any) -> Any:
        """What the user gets for what :meth:`copy` or :meth:`empty` gave: of the kind of ``like``."""

    def assign(self, array: Any, source: Any) -> None:
        """Copies the elements of ``source``, which is of :meth:`copy`, into ``array``."""


_FAMILIES: dict[type, Family] = {}


def register(kind: type, family: Family) -> None:
    """Has all arrays of ``kind`` and its subclasses taken for those of ``family``."""
    _FAMILIES[kind] = family


def family_of(array: object) -> Family:
    """The family of ``array``.

    Raises:
        TypeError: it is no array.
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
