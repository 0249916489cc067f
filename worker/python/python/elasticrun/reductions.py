"""Reductions with Horovod's names and numbers, for modules with its interface."""

from __future__ import annotations

from enum import IntEnum

from .ops import ReduceOp

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "Reduction",
    "Sum",
    "name_of",
    "op_of",
    "reduction_of",
]


class Reduction(IntEnum):
    """Names of the reductions; the numbers are Horovod's."""

    Average = 0
    Sum = 1
    Adasum = 2
    Min = 3
    Max = 4
    Product = 5


Average = Reduction.Average
Sum = Reduction.Sum
Adasum = Reduction.Adasum
Min = Reduction.Min
Max = Reduction.Max
Product = Reduction.Product

_NAMED = {reduction.name.lower(): reduction for reduction in Reduction}


def reduction_of(op: Reduction | ReduceOp | int | None, average: bool | None = None) -> Reduction:
    """The reduction that ``op``, or ``average`` in old scripts, names. Default: Average.

    Raises:
        ValueError: both are given, or ``op`` is no reduction.
    """
    if op is not None and average is not None:
        raise ValueError("op and average are both given: leave average out")
    if op is None:
        return Sum if average is False else Average
    if isinstance(op, ReduceOp):
        return _NAMED[op.value]
    try:
        return Reduction(op)
    except ValueError:
        allowed = ", ".join(reduction.name for reduction in Reduction)
        raise ValueError(f"op is {op!r}: use one of {allowed}") from None


def name_of(op: Reduction | ReduceOp) -> str:
    """The name of ``op`` in collectives."""
    return reduction_of(op).name.lower()


def op_of(op: Reduction) -> ReduceOp:
    """``op`` as a :class:`~elasticrun.ReduceOp`, which has no Adasum."""
    return ReduceOp(op.name.lower())
