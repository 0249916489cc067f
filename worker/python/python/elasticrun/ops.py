"""The reductions with which collectives combine arrays element by element."""

from __future__ import annotations

import enum

__all__ = ["Average", "Max", "Min", "Product", "ReduceOp", "Sum", "reduce_op"]


class ReduceOp(enum.Enum):
    """A reduction. Its value is its name in messages. Each has two spellings: ``ReduceOp.SUM`` is ``ReduceOp.Sum``."""

    AVERAGE = "average"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"

    Average = AVERAGE
    Sum = SUM
    Min = MIN
    Max = MAX
    Product = PRODUCT


Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT


def reduce_op(op: object) -> ReduceOp:
    """The reduction that ``op`` is or names: a string, or a constant of a module with Horovod's interface.

    Raises:
        TypeError: ``op`` is no reduction.
    """
    if isinstance(op, ReduceOp):
        return op
    name = op.name if isinstance(op, enum.Enum) else op
    if isinstance(name, str) and name.upper() in ReduceOp.__members__:
        return ReduceOp[name.upper()]
    raise TypeError(f"op is {op!r}: use Average, Sum, Min, Max or Product of elasticrun, or its name as a string")
