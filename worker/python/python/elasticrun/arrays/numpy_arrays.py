"""NumPy arrays and scalars."""

from __future__ import annotations

from typing import Any

import numpy

from .memory import Memory

__all__ = ["NumpyFamily"]


class NumpyFamily:
    """``numpy.ndarray`` and ``numpy.generic``; results are of the same class."""

    def memory(self, array: Any) -> Memory | None:
        """See :class:`~elasticrun.arrays.Family`.

        Raises:
            TypeError: elements are Python objects, or in another byte order.
        """
        if isinstance(array, numpy.generic):
            return None
        dtype = array.dtype
        if dtype.hasobject:
            raise TypeError(f"an array of {dtype} holds Python objects, which have no memory to send")
        if not dtype.isnative:
            raise TypeError(f"an array of {dtype.str} is in another byte order: convert it first")
        if not array.flags.c_contiguous:
            return None
        address = array.__array_interface__["data"][0]
        return Memory(address, array.shape, dtype.name, dtype.itemsize, array)

    def writable(self, array: Any) -> bool:
        """See :class:`~elasticrun.arrays.Family`."""
        return isinstance(array, numpy.ndarray) and bool(array.flags.writeable)

    def copy(self, array: Any) -> Any:
        """See :class:`~elasticrun.arrays.Family`."""
        return numpy.array(array, order="C", copy=True)

    def empty(self, like: Any, shape: tuple[int, ...]) -> Any:
        """See :class:`~elasticrun.arrays.Family`."""
        return numpy.empty(shape, like.dtype)

    def result(self, filled: Any, like: Any) -> Any:
        """See :class:`~elasticrun.arrays.Family`."""
        return filled[()] if isinstance(like, numpy.generic) and filled.ndim == 0 else filled

    def assign(self, array: Any, source: Any) -> None:
        """See :class:`~elasticrun.arrays.Family`."""
        numpy.copyto(array, source)
