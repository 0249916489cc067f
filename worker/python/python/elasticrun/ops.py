"""The reductions with which collectives combine arrays element by element."""

from __future__ import annotations

import enum

__all__ = ["Average", "Max", "Min", "Product", "ReduceOp", "Sum"]


class ReduceOp(enum.Enum):
    """A reduction. Its value is its name in messages."""

    AVERAGE = "average"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"


Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT
