"""Adasum: a sum of gradients that counts their common part once.

Two gradients are combined as ``(1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b``: orthogonal ones are added,
parallel ones averaged (Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020). More
than two are combined in a tree by recursive doubling: at step k, ranks that differ in bit k exchange their values,
so that all ranks have the result after log2(size) exchanges. Ranks beyond the largest power of two first combine
with a partner, and receive the result from it at the end.

The framework layers implement the exchange and the dot products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["shares", "tree"]

T = TypeVar("T")


def shares(dot: float, one_squared: float, two_squared: float) -> tuple[float, float]:
    """The factors of two gradients before they are added. A zero gradient does not change the other."""
    one = 1.0 - dot / (2.0 * one_squared) if one_squared > 0 else 1.0
    two = 1.0 - dot / (2.0 * two_squared) if two_squared > 0 else 1.0
    return one, two


def tree(mine: T, rank: int, size: int, swap: Callable[[T, int | None], T], pair: Callable[[T, T], T]) -> T:
    """The combination of the values of all ranks, bit for bit the same on all.

    Args:
        mine: the value of this rank.
        rank: this rank.
        size: number of ranks.
        swap: exchanges values with a partner. All ranks call it equally often. A rank without a partner in an exchange
            passes None, and the returned value is ignored.
        pair: combines two values.
    """
    inner = 1 << (size.bit_length() - 1)
    beyond = rank - inner if rank >= inner else rank + inner
    partner = beyond if beyond < size else None
    if size > inner:
        # The ranks beyond the power of two send their values to the first ranks.
        theirs = swap(mine, partner)
        if rank < inner and partner is not None:
            mine = pair(mine, theirs)
    bit = 1
    while bit < inner:
        theirs = swap(mine, rank ^ bit if rank < inner else None)
        if rank < inner:
            # The same order of arguments on both sides, so that both compute the same bits.
            mine = pair(mine, theirs) if rank & bit == 0 else pair(theirs, mine)
        bit <<= 1
    if size > inner:
        theirs = swap(mine, partner)
        if rank >= inner:
            mine = theirs
    return mine
