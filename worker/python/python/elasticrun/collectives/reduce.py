"""Collectives that combine arrays element by element."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TypeVar

from .. import lifecycle
from ..arrays import Memory, family_of
from ..handle import Handle
from ..ops import Average, ReduceOp, reduce_op
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
    op: ReduceOp | str = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> A:
    """Combines the arrays of all ranks element by element. All ranks get bit for bit the same result.

    Args:
        array: of the same shape and type on all ranks. A number is an array of one element. Averages of integers are
            rounded towards zero.
        op: :data:`~elasticrun.Average`, ``Sum``, ``Min``, ``Max`` or ``Product``, or its name, such as ``"sum"``.
        name: name of the array in messages.
        prescale_factor: factor of each element before the reduction.
        postscale_factor: factor of each element of the result.

    Returns:
        A new array of the class, shape and type of ``array``.
    """
    return _one(array, op, name, prescale_factor, postscale_factor, False, "allreduce").wait()


def allreduce_(
    array: A,
    op: ReduceOp | str = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> A:
    """Like :func:`allreduce`, in place. Returns ``array``."""
    return _one(array, op, name, prescale_factor, postscale_factor, True, "allreduce_").wait()


def allreduce_async(
    array: A,
    op: ReduceOp | str = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[A]:
    """Like :func:`allreduce`, without waiting. ``array`` is copied first, so it may be changed immediately."""
    return _one(array, op, name, prescale_factor, postscale_factor, False, "allreduce_async")


def allreduce_async_(
    array: A,
    op: ReduceOp | str = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[A]:
    """Like :func:`allreduce_`, without waiting."""
    return _one(array, op, name, prescale_factor, postscale_factor, True, "allreduce_async_")


def grouped_allreduce(
    arrays: Sequence[A],
    op: ReduceOp | str = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[A]:
    """:func:`allreduce` of several arrays, as one operation for each element type."""
    return grouped_allreduce_async(
        arrays, op, name, prescale_factor=prescale_factor, postscale_factor=postscale_factor
    ).wait()


def grouped_allreduce_(
    arrays: Sequence[A],
    op: ReduceOp | str = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[A]:
    """Like :func:`grouped_allreduce`, in place. Returns ``arrays`` as a list."""
    return grouped_allreduce_async_(
        arrays, op, name, prescale_factor=prescale_factor, postscale_factor=postscale_factor
    ).wait()


def grouped_allreduce_async(
    arrays: Sequence[A],
    op: ReduceOp | str = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[list[A]]:
    """Like :func:`grouped_allreduce`, without waiting. The arrays are copied first."""
    return _allreduce(arrays, op, name, (prescale_factor, postscale_factor), False, "grouped_allreduce")


def grouped_allreduce_async_(
    arrays: Sequence[A],
    op: ReduceOp | str = Average,
    name: str | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[list[A]]:
    """Like :func:`grouped_allreduce_`, without waiting."""
    return _allreduce(arrays, op, name, (prescale_factor, postscale_factor), True, "grouped_allreduce_")


def reducescatter(array: A, op: ReduceOp | str = Average, name: str | None = None) -> A:
    """Combines the arrays of all ranks like :func:`allreduce`, and returns to each rank its rows.

    Returns:
        A new array with the rows of this rank. The first dimension of ``array`` is divided by ``size()``. If it does not
        divide evenly, the first ranks get one row more.
    """
    return reducescatter_async(array, op, name).wait()


def reducescatter_async(array: A, op: ReduceOp | str = Average, name: str | None = None) -> Handle[A]:
    """Like :func:`reducescatter`, without waiting. ``array`` is copied first."""
    op = reduce_op(op)
    queue = lifecycle.collective_queue("reducescatter")
    source = Target(array, False)
    memory = source.memory
    dtype = element_type(memory, op)
    share, rest = divmod(memory.rows, queue.size)
    rows = share + (queue.rank < rest)
    family = family_of(array)
    output = family.empty(array, (rows, *memory.shape[1:]))
    dst = family.memory(output)
    assert dst is not None, "a new array is contiguous"
    called = label("reducescatter", name, [memory], op.value)
    if rest == 0:
        work = queue.reduce_scatter(
            (memory.address, memory.nbytes),
            (dst.address, dst.nbytes),
            dtype,
            op.value,
            (memory, dst),
            called,
            tag=tag(name, [memory]),
        )
        return Handle([work], lambda: family.result(output, array))
    # The rows do not divide evenly: allreduce everything, and keep the rows of this rank.
    work = queue.allreduce([(memory.address, memory.nbytes)], dtype, op.value, memory, called, tag=tag(name, [memory]))
    first = queue.rank * share + min(queue.rank, rest)

    def part() -> A:
        ctypes.memmove(dst.address, memory.address + first * memory.row_nbytes, dst.nbytes)
        result: A = family.result(output, array)
        return result

    return Handle([work], part)


def _one(
    array: A,
    op: ReduceOp | str,
    name: str | None,
    before: float,
    after: float,
    in_place: bool,
    called: str,
) -> Handle[A]:
    return _allreduce([array], op, name, (before, after), in_place, called).then(lambda all: all[0])


def _allreduce(
    arrays: Sequence[A],
    op: ReduceOp | str,
    name: str | None,
    scale: tuple[float, float],
    in_place: bool,
    called: str,
) -> Handle[list[A]]:
    op = reduce_op(op)
    queue = lifecycle.collective_queue(called)
    targets = [Target(array, in_place) for array in arrays]
    by_type: dict[str, list[Memory]] = {}
    for target in targets:
        by_type.setdefault(element_type(target.memory, op), []).append(target.memory)
    works = []
    for dtype, memories in by_type.items():
        buffers = [(memory.address, memory.nbytes) for memory in memories]
        named = label("allreduce", name, memories, op.value)
        works.append(queue.allreduce(buffers, dtype, op.value, memories, named, *scale, tag(name, memories)))
    return Handle(works, lambda: [target.result() for target in targets])
