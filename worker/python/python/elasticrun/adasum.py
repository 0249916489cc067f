"""Adasum: a sum that does not count twice what two gradients have in common.

Two gradients are combined as ``(1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b``: orthogonal ones are added,
parallel ones averaged (Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020). More
than two are combined in a tree by recursive doubling: at step k ranks that differ in bit k exchange what
they have, so that after log2(size) exchanges all have the result. Ranks beyond the largest power of two
are combined with a partner first and get the result from it at the end.

How gradients travel, and how two are multiplied, is the affair of the frameworks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["shares", "tree"]

T = TypeVar("T")


def shares(dot: float, one_squared: float, two_squared: float) -> tuple[float, float]:
    """What two gradients are multiplied by before they are added; one that is zero changes nothing."""
    one = 1.0 - dot / (2.0 * one_squared) if one_squared > 0 else 1.0
    two = 1.0 - dot / (2.0 * two_squared) if two_squared > 0 else 1.0
    return one, two


def tree(mine: T, rank: int, size: int, swap: Callable[[T, int | None], T], pair: Callable[[T, T], T]) -> T:
    """What all ranks have, combined; the same bits on all.

    Args:
        mine: what this rank has.
        rank: its rank.
        size: how many there are.
        swap: gives what another rank has for what this one has. All ranks call it as often; one that has no
            partner in an exchange gives None, and nothing is done with what it gets.
        pair: combines two.
    """
    inner = 1 << (size.bit_length() - 1)
    beyond = rank - inner if rank >= inner else rank + inner
    partner = beyond if beyond < size else None
    if size > inner:
        # The last ranks give theirs to the first ones.
        theirs = swap(mine, partner)
        if rank < inner and partner is not None:
            mine = pair(mine, theirs)
    bit = 1
    while bit < inner:
        theirs = swap(mine, rank ^ bit if rank < inner else None)
        if rank < inner:
            # In one order on both sides, so that both get the same bits.
            mine = pair(mine, theirs) if rank & bit == 0 else pair(theirs, mine)
        bit <<= 1
    if size > inner:
        theirs = swap(mine, partner)
        if rank >= inner:
            mine = theirs
    return mine
