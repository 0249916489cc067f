"""``array.array`` and ``bytearray``: arrays without any library."""

from __future__ import annotations

import array
from typing import Any

from ..arrays.buffers import BufferFamily
from ..codec import Stored, register

__all__ = ["BufferCoder"]


class BufferCoder:
    """The memory as it is; the live object is filled if it has as many elements of the same type."""

    def encode(self, value: Any) -> Stored | None:
        """See :class:`~elasticrun.codec.Coder`."""
        memory = BufferFamily().memory(value)
        assert memory is not None, "it is contiguous and can be written"
        code = value.typecode if isinstance(value, array.array) else None
        return Stored(code, memory.address, memory.nbytes, memory.owner)

    def decode(self, meta: Any, data: memoryview, live: Any | None) -> Any:
        """See :class:`~elasticrun.codec.Coder`."""
        if live is not None and getattr(live, "typecode", None) == meta:
            with memoryview(live) as view:
                if view.nbytes == len(data):
                    view.cast("B")[:] = data
                    return live
        return bytearray(data) if meta is None else array.array(meta, bytes(data))


register(array.array, "array", BufferCoder())
register(bytearray, "bytearray", BufferCoder())
