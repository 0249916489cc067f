"""Objects with the buffer protocol."""

from __future__ import annotations

import array as arrays
import ctypes
import math
from typing import Any

from .memory import Memory

__all__ = ["BufferFamily"]

_KINDS = {"?": "bool"}
_KINDS |= dict.fromkeys("bhilqn", "int")
_KINDS |= dict.fromkeys("BHILQNc", "uint")
_KINDS |= dict.fromkeys("efd", "float")


class BufferFamily:
    """``array.array``, ``bytearray``, ``memoryview``, ``ctypes`` arrays and other objects with the buffer protocol.

    A copy of an ``array.array`` is an ``array.array``. A copy of ``bytes`` or a ``bytearray`` is a ``bytearray``. A copy of
    any other object is a ``memoryview`` of the same format and shape.
    """

    @staticmethod
    def takes(array: object) -> bool:
        """Whether ``array`` exports its memory, with elements of a supported type."""
        try:
            with memoryview(array) as view:  # type: ignore[arg-type]
                return _code(view.format) in _KINDS
        except (TypeError, BufferError):
            return False

    def memory(self, array: Any) -> Memory | None:
        """See :class:`~elasticrun.arrays.Family`. Read-only memory has no address here, so it is copied."""
        view = memoryview(array)
        shape = tuple(view.shape or ())
        if view.readonly or not view.c_contiguous:
            return None
        code = _code(view.format)
        kind = _KINDS.get(code)
        if kind is None:
            raise TypeError(f"memory of format {view.format!r} is not of numbers in the host's byte order")
        dtype = kind if kind == "bool" else f"{kind}{8 * view.itemsize}"
        if view.nbytes == 0:
            return Memory(0, shape, dtype, view.itemsize, view)
        flat = view if view.ndim == 1 and view.format == "B" else view.cast("B")
        pinned = (ctypes.c_char * view.nbytes).from_buffer(flat)
        return Memory(ctypes.addressof(pinned), shape, dtype, view.itemsize, (pinned, view))

    def writable(self, array: Any) -> bool:
        """See :class:`~elasticrun.arrays.Family`."""
        with memoryview(array) as view:
            return not view.readonly

    def copy(self, array: Any) -> Any:
        """See :class:`~elasticrun.arrays.Family`."""
        if isinstance(array, arrays.array):
            return array[:]
        with memoryview(array) as view:
            return self._shaped(array, view, bytearray(view.tobytes()), tuple(view.shape or ()))

    def empty(self, like: Any, shape: tuple[int, ...]) -> Any:
        """See :class:`~elasticrun.arrays.Family`."""
        if isinstance(like, arrays.array):
            return arrays.array(like.typecode, bytes(math.prod(shape) * like.itemsize))
        with memoryview(like) as view:
            return self._shaped(like, view, bytearray(math.prod(shape) * view.itemsize), shape)

    def result(self, filled: Any, like: Any) -> Any:
        """See :class:`~elasticrun.arrays.Family`."""
        return filled

    def assign(self, array: Any, source: Any) -> None:
        """See :class:`~elasticrun.arrays.Family`."""
        memoryview(array)[:] = memoryview(source)

    @staticmethod
    def _shaped(like: object, view: memoryview, data: bytearray, shape: tuple[int, ...]) -> bytearray | memoryview:
        if isinstance(like, (bytes, bytearray)):
            return data
        # A cast takes formats without a byte order mark. takes() has checked that the byte order is the host's.
        code: Any = _code(view.format)
        if not data:
            return memoryview(data).cast(code)
        return memoryview(data).cast(code, shape)


def _code(form: str) -> str:
    """The code of a format, without a mark of the host's byte order."""
    return form[1:] if form[:1] in "@=<" and len(form) == 2 else form
