"""The coder of NumPy arrays of numbers, fixed-length strings and records. Arrays of Python objects are pickled."""

from __future__ import annotations

import pickle
from typing import Any, cast

import numpy

from ..codec import Stored, register

__all__ = ["NumpyCoder"]

Array = numpy.ndarray[Any, Any]


class NumpyCoder:
    """Stores memory in its order (C or Fortran). Other arrays are copied to C order first."""

    def encode(self, array: Array) -> Stored | None:
        """See :class:`~elasticrun.codec.Coder`."""
        if array.dtype.hasobject:
            return None
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        if order == "C":
            array = numpy.ascontiguousarray(array) if array.ndim else array
        meta = (_name(array.dtype), array.shape, order)
        address = array.__array_interface__["data"][0]
        return Stored(meta, address, array.nbytes, array)

    def describe(self, meta: Any) -> tuple[str, bool]:
        """See :class:`~elasticrun.codec.DescribingCoder`."""
        name, shape, _ = meta
        return f"{_dtype(name)}{list(shape)}", False

    def decode(self, meta: Any, data: memoryview, live: Array | None) -> Array:
        """See :class:`~elasticrun.codec.Coder`."""
        name, shape, order = meta
        dtype = _dtype(name)
        array = live
        if array is None or not _fits(array, dtype, shape, order):
            array = numpy.empty(shape, dtype, order)
        if array.nbytes:
            flat = array.reshape(-1, order=order)
            flat.view(numpy.uint8)[:] = numpy.frombuffer(data, numpy.uint8)
        return array


def _fits(array: Array, dtype: numpy.dtype[Any], shape: tuple[int, ...], order: str) -> bool:
    flags = array.flags
    lies = flags.c_contiguous if order == "C" else flags.f_contiguous
    return bool(lies and flags.writeable and array.dtype == dtype and array.shape == shape)


def _name(dtype: numpy.dtype[Any]) -> str | bytes:
    """The name of a type, which is shorter than its pickle. Records and types of other libraries need the pickle."""
    named = dtype.kind in "biufcSUmM" and dtype.names is None
    return dtype.str if named else pickle.dumps(dtype)


def _dtype(name: str | bytes) -> numpy.dtype[Any]:
    return numpy.dtype(name) if isinstance(name, str) else cast(numpy.dtype[Any], pickle.loads(name))


register(numpy.ndarray, "numpy", NumpyCoder())
