"""Python numbers, so that scalars such as losses can be averaged without NumPy."""

from __future__ import annotations

import array as arrays
import math
from typing import Any

from .buffers import BufferFamily
from .memory import Memory

__all__ = ["NumberFamily"]


class NumberFamily:
    """A ``float`` as one ``float64``, an ``int`` or ``bool`` as one ``int64``."""

    def memory(self, array: Any) -> Memory | None:
        """See :class:`~elasticrun.arrays.Family`. A number has no accessible memory, only its copy has."""
        if not isinstance(array, arrays.array):
            return None
        memory = BufferFamily().memory(array)
        if memory is None or len(array) != 1:
            return memory
        return Memory(memory.address, (), memory.dtype, memory.itemsize, memory.owner)

    def writable(self, array: Any) -> bool:
        """See :class:`~elasticrun.arrays.Family`."""
        return False

    def copy(self, array: Any) -> Any:
        """See :class:`~elasticrun.arrays.Family`."""
        return arrays.array("d" if isinstance(array, float) else "q", [array])

    def empty(self, like: Any, shape: tuple[int, ...]) -> Any:
        """See :class:`~elasticrun.arrays.Family`."""
        return arrays.array("d" if isinstance(like, float) else "q", bytes(8 * math.prod(shape)))

    def result(self, filled: Any, like: Any) -> Any:
        """See :class:`~elasticrun.arrays.Family`."""
        return filled[0]

    def assign(self, array: Any, source: Any) -> None:
        """See :class:`~elasticrun.arrays.Family`."""
        raise TypeError("a number cannot be changed in place")
