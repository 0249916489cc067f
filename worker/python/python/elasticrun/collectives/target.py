"""The memory that a collective writes, and its conversion to a result for the user."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from ..arrays import Memory, family_of
from ..arrays.memory import REDUCIBLE
from ..ops import ReduceOp

__all__ = ["Target", "element_type", "label", "tag"]


class Target:
    """Memory for a result, which initially holds the elements of an array."""

    def __init__(self, array: Any, in_place: bool) -> None:
        self._family = family_of(array)
        self._array = array
        self._in_place = in_place
        memory = None
        if in_place:
            if not self._family.writable(array):
                raise TypeError(
                    f"a {type(array).__qualname__} that is read-only cannot be changed in place: use the function"
                    " without _ at its end"
                )
            memory = self._family.memory(array)
        self._copied = memory is None
        self._filled = array
        if memory is None:
            self._filled = self._family.copy(array)
            memory = self._family.memory(self._filled)
            assert memory is not None, "a copy is contiguous"
        self.memory: Memory = memory

    def result(self) -> Any:
        """The result for the user, once the collective is done."""
        if not self._in_place:
            return self._family.result(self._filled, self._array)
        if self._copied:
            self._family.assign(self._array, self._filled)
        return self._array


def label(kind: str, name: str | None, memories: Sequence[Memory], detail: str = "") -> str:
    """The description of a collective in errors: function, the user's name, type and shape."""
    named = f" of {name!r}" if name else ""
    kinds = ", ".join(map(str, memories[:3])) + (", ..." if len(memories) > 3 else "")
    return f"{kind}{named} ({kinds}{', ' if detail else ''}{detail})"


def tag(name: str | None, memories: Sequence[Memory]) -> int:
    """A checksum of name, types and shapes, which ranks compare."""
    return zlib.crc32("\0".join([name or "", *map(str, memories)]).encode())


def element_type(memory: Memory, op: ReduceOp) -> str:
    """Name of the element type in a reduction.

    Raises:
        TypeError: ``op`` does not support the type.
    """
    if memory.dtype == "bool" and op in (ReduceOp.MIN, ReduceOp.MAX):
        return "u8"
    if memory.dtype not in REDUCIBLE:
        more = "; bool by Min (and) and Max (or)" if memory.dtype == "bool" else ""
        raise TypeError(
            f"elements of type {memory.dtype} cannot be combined by {op.value}: {', '.join(REDUCIBLE)} can{more}"
        )
    return REDUCIBLE[memory.dtype]
