"""The coder of ``array.array``, ``bytearray`` and ``memoryview``."""

from __future__ import annotations

import array
import math
from typing import Any

from ..arrays.buffers import BufferFamily
from ..codec import Stored, register

__all__ = ["BufferCoder"]


class BufferCoder:
    """Stores the memory unchanged. A ``memoryview`` that cannot be filled in place is restored as one of a ``bytearray``."""

    def encode(self, value: Any) -> Stored | None:
        """See :class:`~elasticrun.codec.Coder`."""
        family = BufferFamily()
        memory = family.memory(value) or family.memory(family.copy(value))
        assert memory is not None, "a copy is contiguous and can be written"
        return Stored(_kind(value), memory.address, memory.nbytes, memory.owner)

    def decode(self, meta: Any, data: memoryview, live: Any | None) -> Any:
        """See :class:`~elasticrun.codec.Coder`."""
        if live is not None and _kind(live) == meta and BufferFamily().writable(live):
            with memoryview(live) as view:
                if view.nbytes == len(data) and view.c_contiguous:
                    if view.nbytes:
                        view.cast("B")[:] = data
                    return live
        name, form, shape = meta
        if name == "array":
            return array.array(form, bytes(data))
        if name == "bytearray":
            return bytearray(data)
        view = memoryview(bytearray(data))
        return view.cast(form, shape) if math.prod(shape) else view.cast(form)


def _kind(value: Any) -> tuple[str, str | None, tuple[int, ...] | None]:
    """The properties that two values must share, besides the length, for one to be filled with the other."""
    if isinstance(value, array.array):
        return "array", value.typecode, None
    if isinstance(value, bytearray):
        return "bytearray", None, None
    return "memoryview", value.format, tuple(value.shape)


register(array.array, "array", BufferCoder())
register(bytearray, "bytearray", BufferCoder())
register(memoryview, "memoryview", BufferCoder())
