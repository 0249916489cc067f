"""Adasum of NumPy arrays, each one separately. Dot products are summed in 64 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from elasticrun import collectives, lifecycle
from elasticrun.adasum import shares, tree

from .host import Array

__all__ = ["combine", "pair"]


def pair(one: Array, two: Array) -> Array:
    """Combines two arrays of the same shape and type."""
    a, b = one.astype(numpy.float64), two.astype(numpy.float64)
    a_share, b_share = shares(float(numpy.vdot(a, b)), float(numpy.vdot(a, a)), float(numpy.vdot(b, b)))
    return numpy.asarray(a * a_share + b * b_share).astype(one.dtype)


def combine(arrays: Sequence[Array], prescale: float, postscale: float, name: str | None) -> list[Array]:
    """Combines ``arrays`` with those of all ranks.

    Raises:
        TypeError: the elements are not floats.
        WorkersFailed: the round is over.
    """
    for array in arrays:
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            raise TypeError(f"Adasum of {array.dtype}: it is defined for floats only")
    world = lifecycle.world()

    def swap(mine: Array, partner: int | None) -> Array:
        # A rank without a partner sends to itself.
        dst = world.rank if partner is None else partner
        elements = numpy.ascontiguousarray(mine).reshape(-1)
        splits = [elements.size if rank == dst else 0 for rank in range(world.size)]
        theirs, _ = collectives.alltoall(elements, splits, name)
        return numpy.asarray(theirs).reshape(mine.shape)

    mine = [(array * prescale).astype(array.dtype) for array in arrays]
    combined = [tree(array, world.rank, world.size, swap, pair) for array in mine]
    return [numpy.asarray(array * postscale).astype(array.dtype) for array in combined]
