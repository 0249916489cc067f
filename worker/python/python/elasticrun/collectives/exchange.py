"""Collectives that bring arrays from rank to rank as they are."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import TypeVar, cast

from .. import lifecycle
from ..arrays import Memory, family_of
from ..errors import CollectiveMismatch
from ..handle import Handle
from .target import Target, label

__all__ = [
    "allgather",
    "allgather_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
]

A = TypeVar("A")

_LENGTH = struct.Struct("<Q")


def barrier() -> None:
    """Waits until all ranks are here."""
    lifecycle.lane("barrier").barrier("barrier").wait()


def broadcast(array: A, root_rank: int = 0, name: str | None = None) -> A:
    """The array of ``root_rank``, on all ranks; they all pass one of the same shape and type.

    Returns:
        A new array of the kind of ``array``.

    Raises:
        ValueError: there is no rank ``root_rank``.
    """
    return _broadcast(array, root_rank, name, False).wait()


def broadcast_(array: A, root_rank: int = 0, name: str | None = None) -> A:
    """As :func:`broadcast`, in place. Returns ``array``."""
    return _broadcast(array, root_rank, name, True).wait()


def broadcast_async(array: A, root_rank: int = 0, name: str | None = None) -> Handle[A]:
    """As :func:`broadcast`, without waiting; ``array`` is copied first."""
    return _broadcast(array, root_rank, name, False)


def broadcast_async_(array: A, root_rank: int = 0, name: str | None = None) -> Handle[A]:
    """As :func:`broadcast_`, without waiting."""
    return _broadcast(array, root_rank, name, True)


def allgather(array: A, name: str | None = None) -> A:
    """The arrays of all ranks, one after the other along the first dimension.

    Args:
        array: of the same type on all ranks, and of the same shape but for the first dimension.
        name: for messages.

    Raises:
        CollectiveMismatch: the types or the other dimensions differ; all ranks raise it.
        ValueError: ``array`` has no dimension.
    """
    return allgather_async(array, name).wait()


def allgather_async(array: A, name: str | None = None) -> Handle[A]:
    """As :func:`allgather`, without waiting; ``array`` is copied first."""
    lane = lifecycle.lane("allgather")
    own = Target(array, False).memory
    called = label("allgather", name, [own])
    # Rows may differ in number, which only the other ranks know: each tells its kind before its elements.
    head = str(own).encode()
    data = b"".join((_LENGTH.pack(len(head)), head, _LENGTH.pack(own.rows), _bytes(own)))
    work = lane.allgather_bytes(data, called)

    def joined() -> A:
        parts = [_part(data) for data in cast(list[bytes], work.result())]
        _check_kinds([kind for kind, _, _ in parts], called)
        family = family_of(array)
        result = family.empty(array, (sum(rows for _, rows, _ in parts), *own.shape[1:]))
        memory = family.memory(result)
        assert memory is not None, "a new array is contiguous"
        at = memory.address
        for _, _, elements in parts:
            ctypes.memmove(at, elements.address, elements.nbytes)
            at += elements.nbytes
        joined: A = family.result(result, array)
        return joined

    return Handle([work], joined)


def alltoall(array: A, splits: Sequence[int] | None = None, name: str | None = None) -> A | tuple[A, list[int]]:
    """Sends each rank a part of ``array``, and gives the parts that the ranks have for this one.

    Args:
        array: of the same type on all ranks, and of the same shape but for the first dimension.
        splits: how many rows go to each rank, in order of rank; without it, as many to each.
        name: for messages.

    Returns:
        The rows that came, in order of rank; with ``splits``, also how many came from each rank.

    Raises:
        ValueError: ``splits`` does not fit the rows of ``array``.
        CollectiveMismatch: as :func:`allgather`.
    """
    return alltoall_async(array, splits, name).wait()


def alltoall_async(
    array: A, splits: Sequence[int] | None = None, name: str | None = None
) -> Handle[A | tuple[A, list[int]]]:
    """As :func:`alltoall`; waits for the other ranks' splits, but not for the elements. ``array`` is copied first."""
    lane = lifecycle.lane("alltoall")
    own = Target(array, False).memory
    called = label("alltoall", name, [own])
    sent = _splits(splits, own.rows, lane.size)
    kind = str(own).encode()
    told = lane.allgather_bytes(b"".join((_LENGTH.pack(len(kind)), kind, *map(_LENGTH.pack, sent))), called)
    told.wait()
    answers = [_kind(data) for data in cast(list[bytes], told.result())]
    _check_kinds([kind for kind, _ in answers], called)
    received = [_LENGTH.unpack_from(data, 8 * lane.rank)[0] for _, data in answers]
    family = family_of(array)
    result = family.empty(array, (sum(received), *own.shape[1:]))
    to = family.memory(result)
    assert to is not None, "a new array is contiguous"
    work = lane.alltoall(
        (own.address, own.nbytes),
        [rows * own.row_nbytes for rows in sent],
        (to.address, to.nbytes),
        [rows * own.row_nbytes for rows in received],
        (own, to),
        called,
    )

    def arrived() -> A | tuple[A, list[int]]:
        array_ = family.result(result, array)
        return array_ if splits is None else (array_, received)

    return Handle([work], arrived)


def _broadcast(array: A, root: int, name: str | None, in_place: bool) -> Handle[A]:
    lane = lifecycle.lane("broadcast")
    if not 0 <= root < lane.size:
        raise ValueError(f"broadcast from rank {root}: there are the ranks 0 to {lane.size - 1}")
    target = Target(array, in_place)
    memory = target.memory
    called = label("broadcast", name, [memory], f"from rank {root}")
    work = lane.broadcast(memory.address, memory.nbytes, root, memory, called)
    return Handle([work], target.result)


def _splits(splits: Sequence[int] | None, rows: int, size: int) -> list[int]:
    if splits is None:
        if rows % size:
            raise ValueError(f"alltoall of {rows} rows among {size} ranks: pass splits, or rows that divide")
        return [rows // size] * size
    sent = [int(split) for split in splits]
    if len(sent) != size or min(sent) < 0 or sum(sent) != rows:
        raise ValueError(f"alltoall with splits {sent}: {size} numbers are needed, none below 0, whose sum is {rows}")
    return sent


def _kind(data: bytes) -> tuple[str, memoryview]:
    """What a rank told of its array, and what follows."""
    (length,) = _LENGTH.unpack_from(data)
    return data[8 : 8 + length].decode(), memoryview(data)[8 + length :]


def _part(data: bytes) -> tuple[str, int, Memory]:
    """What a rank told of its array, the rows of it, and its elements."""
    kind, rest = _kind(data)
    (rows,) = _LENGTH.unpack_from(rest)
    first = len(data) - len(rest) + 8
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
    return kind, rows, Memory(address + first, (len(data) - first,), "uint8", 1, data)


def _check_kinds(kinds: list[str], called: str) -> None:
    """That all ranks have the same type and the same dimensions but for the first."""
    for rank, kind in enumerate(kinds):
        if _but_rows(kind) != _but_rows(kinds[0]):
            raise CollectiveMismatch(
                f"{called}: rank {rank} has {kind} but rank 0 has {kinds[0]}: only the first dimension may differ"
            )


def _but_rows(kind: str) -> tuple[str, list[str]]:
    dtype, _, shape = kind.rstrip("]").partition("[")
    return dtype, shape.split(", ")[1:]


def _bytes(memory: Memory) -> bytes:
    return ctypes.string_at(memory.address, memory.nbytes) if memory.nbytes else b""
