"""Collectives that combine arrays element by element."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TypeVar

from .. import lifecycle
from ..arrays import Memory, family_of
from ..handle import Handle
from ..ops import Average, ReduceOp
from .target import Target, element_type, label, tag

__all__ = [
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "reducescatter",
    "reducescatter_async",
]

A = TypeVar("A")


def allreduce(
    array: A,
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> A:
    """Combines the arrays of all ranks element by element. All get the same bits.

    Args:
        array: of the same shape and type on all ranks; a number is an array of one element. Integers by
            :data:`~elasticrun.Average` are rounded towards zero.
        op: :data:`~elasticrun.Average`, ``Sum``, ``Min``, ``Max`` or ``Product``.
        name: for messages.
        prescale_factor: what each element is multiplied by before.
        postscale_factor: what each element of the result is multiplied by.

    Returns:
        A new array of the kind, shape and type of ``array``.
    """
    return _one(array, op, name, prescale_factor, postscale_factor, False, "allreduce").wait()


def allreduce_(
    array: A,
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> A:
    """As :func:`allreduce`, in place. Returns ``array``."""
    return _one(array, op, name, prescale_factor, postscale_factor, True, "allreduce_").wait()


def allreduce_async(
    array: A,
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[A]:
    """As :func:`allreduce`, without waiting; ``array`` is copied first and may be changed at once."""
    return _one(array, op, name, prescale_factor, postscale_factor, False, "allreduce_async")


def allreduce_async_(
    array: A,
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[A]:
    """As :func:`allreduce_`, without waiting."""
    return _one(array, op, name, prescale_factor, postscale_factor, True, "allreduce_async_")


def grouped_allreduce(
    arrays: Sequence[A],
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[A]:
    """:func:`allreduce` of several arrays at once, as one operation for each type of elements."""
    return grouped_allreduce_async(
        arrays, op, name, prescale_factor=prescale_factor, postscale_factor=postscale_factor
    ).wait()


def grouped_allreduce_(
    arrays: Sequence[A],
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[A]:
    """As :func:`grouped_allreduce`, in place. Returns ``arrays`` as a list."""
    return grouped_allreduce_async_(
        arrays, op, name, prescale_factor=prescale_factor, postscale_factor=postscale_factor
    ).wait()


def grouped_allreduce_async(
    arrays: Sequence[A],
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[list[A]]:
    """As :func:`grouped_allreduce`, without waiting; the arrays are copied first."""
    return _allreduce(arrays, op, name, (prescale_factor, postscale_factor), False, "grouped_allreduce")


def grouped_allreduce_async_(
    arrays: Sequence[A],
    op: ReduceOp = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[list[A]]:
    """As :func:`grouped_allreduce_`, without waiting."""
    return _allreduce(arrays, op, name, (prescale_factor, postscale_factor), True, "grouped_allreduce_")


def reducescatter(array: A, op: ReduceOp = Average, name: str | None = None) -> A:
    """Combines the arrays of all ranks as :func:`allreduce` does, and gives each rank its rows.

    Returns:
        A new array of the rows of this rank: the first dimension of ``array`` is divided by ``size()``; where
        that leaves a rest, the ranks in front have one row more.
    """
    return reducescatter_async(array, op, name).wait()


def reducescatter_async(array: A, op: ReduceOp = Average, name: str | None = None) -> Handle[A]:
    """As :func:`reducescatter`, without waiting; ``array`` is copied first."""
    lane = lifecycle.lane("reducescatter")
    source = Target(array, False)
    memory = source.memory
    dtype = element_type(memory, op)
    share, rest = divmod(memory.rows, lane.size)
    rows = share + (lane.rank < rest)
    family = family_of(array)
    own = family.empty(array, (rows, *memory.shape[1:]))
    to = family.memory(own)
    assert to is not None, "a new array is contiguous"
    called = label("reducescatter", name, [memory], op.value)
    if rest == 0:
        work = lane.reduce_scatter(
            (memory.address, memory.nbytes),
            (to.address, to.nbytes),
            dtype,
            op.value,
            (memory, to),
            called,
            tag=tag(name, [memory]),
        )
        return Handle([work], lambda: family.result(own, array))
    # Rows that do not divide: all of it everywhere, and each keeps its part.
    work = lane.allreduce([(memory.address, memory.nbytes)], dtype, op.value, memory, called, tag=tag(name, [memory]))
    first = lane.rank * share + min(lane.rank, rest)

    def part() -> A:
        ctypes.memmove(to.address, memory.address + first * memory.row_nbytes, to.nbytes)
        result: A = family.result(own, array)
        return result

    return Handle([work], part)


def _one(
    array: A,
    op: ReduceOp,
    name: str | None,
    before: float,
    after: float,
    in_place: bool,
    called: str,
) -> Handle[A]:
    return _allreduce([array], op, name, (before, after), in_place, called).then(lambda all: all[0])


def _allreduce(
    arrays: Sequence[A],
    op: ReduceOp,
    name: str | None,
    scale: tuple[float, float],
    in_place: bool,
    called: str,
) -> Handle[list[A]]:
    lane = lifecycle.lane(called)
    targets = [Target(array, in_place) for array in arrays]
    by_type: dict[str, list[Memory]] = {}
    for target in targets:
        by_type.setdefault(element_type(target.memory, op), []).append(target.memory)
    works = []
    for dtype, memories in by_type.items():
        buffers = [(memory.address, memory.nbytes) for memory in memories]
        named = label("allreduce", name, memories, op.value)
        works.append(lane.allreduce(buffers, dtype, op.value, memories, named, *scale, tag(name, memories)))
    return Handle(works, lambda: [target.result() for target in targets])
