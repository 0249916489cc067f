"""Adasum: a sum that does not count twice what two gradients have in common.

Two gradients are combined as ``(1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b``: orthogonal ones are added,
parallel ones averaged (Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020). Pairs of
ranks are combined, then pairs of pairs: in step k ranks that differ in bit k exchange what they have. Ranks
beyond the largest power of two give theirs to a partner first and get the result from it at the end.

Each array by itself. Dot products are summed in 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from elasticrun import collectives, lifecycle

from .host import Array

__all__ = ["combine", "pair"]


def pair(one: Array, two: Array) -> Array:
    """The combination of two arrays of one shape, in their own type."""
    a, b = one.astype(numpy.float64), two.astype(numpy.float64)
    dot = float(numpy.vdot(a, b))
    a_squared, b_squared = float(numpy.vdot(a, a)), float(numpy.vdot(b, b))
    a_share = 1.0 - dot / (2.0 * a_squared) if a_squared > 0 else 1.0
    b_share = 1.0 - dot / (2.0 * b_squared) if b_squared > 0 else 1.0
    return numpy.asarray(a * a_share + b * b_share).astype(one.dtype)


def combine(arrays: Sequence[Array], prescale: float, postscale: float, name: str | None) -> list[Array]:
    """``arrays`` combined with those of all ranks.

    Raises:
        TypeError: elements are no floats.
        WorkersFailed: the round is over.
    """
    for array in arrays:
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            raise TypeError(f"Adasum of {array.dtype}: it is defined for floats only")
    mine = [(array * prescale).astype(array.dtype) for array in arrays]
    combined = [_tree(array, name) for array in mine]
    return [numpy.asarray(array * postscale).astype(array.dtype) for array in combined]


def _tree(mine: Array, name: str | None) -> Array:
    world = lifecycle.world()
    rank, size = world.rank, world.size
    inner = 1 << (size.bit_length() - 1)
    beyond = rank - inner if rank >= inner else rank + inner
    if size > inner:
        theirs = _swap(mine, beyond, name)
        if rank < size - inner:
            mine = pair(mine, theirs)
    bit = 1
    while bit < inner:
        theirs = _swap(mine, rank ^ bit if rank < inner else rank, name)
        if rank < inner:
            # In one order on both sides, so that both get the same bits.
            mine = pair(mine, theirs) if rank & bit == 0 else pair(theirs, mine)
        bit <<= 1
    if size > inner:
        theirs = _swap(mine, beyond, name)
        if rank >= inner:
            mine = theirs
    return mine


def _swap(mine: Array, partner: int, name: str | None) -> Array:
    """The partner's array; our own if the partner is this rank or none. All ranks call it."""
    world = lifecycle.world()
    if not 0 <= partner < world.size:
        partner = world.rank
    elements = numpy.ascontiguousarray(mine).reshape(-1)
    splits = [elements.size if rank == partner else 0 for rank in range(world.size)]
    theirs, _ = collectives.alltoall(elements, splits, name)
    return numpy.asarray(theirs).reshape(mine.shape)
