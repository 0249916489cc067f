"""A state of arrays, restored in place."""

from __future__ import annotations

from .object_state import ObjectState

__all__ = ["ArrayState"]


class ArrayState(ObjectState):
    """Arrays by name, and other attributes beside them.

        state = ArrayState(weights=numpy.zeros(1000), step=0)

    A restore fills arrays in place, also inside lists and dictionaries, so that other references to them see the restored
    values. That holds for NumPy arrays, ``array.array``, ``bytearray``, ``memoryview`` and arrays with DLPack whose type and
    shape match the commit. Otherwise (another shape, read-only memory, memory that two attributes share) the attribute
    becomes a new array.

    Raises:
        StateError: as :class:`ObjectState`.
    """

    _in_place = True
