"""Contiguous memory with a shape and an element type."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

__all__ = ["REDUCIBLE", "Memory"]

#: Element types that reductions support, and their names in the collectives.
REDUCIBLE = {
    "uint8": "u8",
    "int8": "i8",
    "uint16": "u16",
    "int16": "i16",
    "uint32": "u32",
    "int32": "i32",
    "uint64": "u64",
    "int64": "i64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
}


@dataclass(frozen=True)
class Memory:
    """The elements of an array in memory, in row-major order without gaps.

    Attributes:
        address: address of the first element; undefined for an empty array.
        shape: number of elements along each dimension.
        dtype: NumPy's name of the element type, such as ``float32``.
        itemsize: bytes of one element.
        owner: object that keeps the memory alive.
    """

    address: int
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    owner: object = field(repr=False)

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.count * self.itemsize

    @property
    def rows(self) -> int:
        """Size of the first dimension.

        Raises:
            ValueError: the array has no dimension.
        """
        if not self.shape:
            raise ValueError("an array without dimensions has no rows: reshape it to (1,)")
        return self.shape[0]

    @property
    def row_nbytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape[1:]) * self.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"
