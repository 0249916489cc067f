"""A state of arrays, restored in place."""

from __future__ import annotations

from .object_state import ObjectState

__all__ = ["ArrayState"]


class ArrayState(ObjectState):
    """Arrays by name, and other attributes beside them.

        state = ArrayState(weights=numpy.zeros(1000), step=0)

    Arrays of NumPy, ``array.array``, ``bytearray``, ``memoryview`` and what has DLPack that still have the type
    and shape of what was committed are filled in place, so that others who hold them see the restored values; so
    are those inside of lists and dictionaries. Where that is not possible (another shape, read-only memory, memory
    that two attributes share by now) the attribute is a new array.

    Raises:
        StateError: as :class:`ObjectState`.
    """

    _in_place = True
