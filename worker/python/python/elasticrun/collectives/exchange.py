"""Collectives that move arrays between ranks without combining them."""

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
    """Waits until all ranks have called it."""
    work = lifecycle.collective_queue("barrier").barrier("barrier")
    Handle([work], lambda: None).wait()


def broadcast(array: A, root_rank: int = 0, name: str | None = None) -> A:
    """Copies the array of ``root_rank`` to all ranks. All ranks pass an array of the same shape and type.

    Returns:
        A new array of the class of ``array``.

    Raises:
        ValueError: there is no rank ``root_rank``.
    """
    return _broadcast(array, root_rank, name, False).wait()


def broadcast_(array: A, root_rank: int = 0, name: str | None = None) -> A:
    """Like :func:`broadcast`, in place. Returns ``array``."""
    return _broadcast(array, root_rank, name, True).wait()


def broadcast_async(array: A, root_rank: int = 0, name: str | None = None) -> Handle[A]:
    """Like :func:`broadcast`, without waiting. ``array`` is copied first."""
    return _broadcast(array, root_rank, name, False)


def broadcast_async_(array: A, root_rank: int = 0, name: str | None = None) -> Handle[A]:
    """Like :func:`broadcast_`, without waiting."""
    return _broadcast(array, root_rank, name, True)


def allgather(array: A, name: str | None = None) -> A:
    """Concatenates the arrays of all ranks along the first dimension, in order of rank.

    Args:
        array: of the same type and, except for the first dimension, the same shape on all ranks.
        name: name of the array in messages.

    Raises:
        CollectiveMismatch: the types or the other dimensions differ. All ranks raise it.
        ValueError: ``array`` has no dimension.
    """
    return allgather_async(array, name).wait()


def allgather_async(array: A, name: str | None = None) -> Handle[A]:
    """Like :func:`allgather`, without waiting. ``array`` is copied first."""
    queue = lifecycle.collective_queue("allgather")
    local = Target(array, False).memory
    called = label("allgather", name, [local])
    # Ranks may have different numbers of rows, so each sends its type, shape and rows before its elements.
    head = str(local).encode()
    data = b"".join((_LENGTH.pack(len(head)), head, _LENGTH.pack(local.rows), _bytes(local)))
    work = queue.allgather_bytes(data, called)

    def joined() -> A:
        parts = [_part(data) for data in cast(list[bytes], work.result())]
        _check_kinds([kind for kind, _, _ in parts], called)
        family = family_of(array)
        result = family.empty(array, (sum(rows for _, rows, _ in parts), *local.shape[1:]))
        memory = family.memory(result)
        assert memory is not None, "a new array is contiguous"
        dst = memory.address
        for _, _, elements in parts:
            ctypes.memmove(dst, elements.address, elements.nbytes)
            dst += elements.nbytes
        joined: A = family.result(result, array)
        return joined

    return Handle([work], joined)


def alltoall(array: A, splits: Sequence[int] | None = None, name: str | None = None) -> A | tuple[A, list[int]]:
    """Sends a part of ``array`` to each rank, and returns the parts that the ranks sent to this one.

    Args:
        array: of the same type and, except for the first dimension, the same shape on all ranks.
        splits: number of rows for each rank, in order of rank. Default: the same number for each.
        name: name of the array in messages.

    Returns:
        The received rows, in order of rank; with ``splits``, also the number of rows from each rank.

    Raises:
        ValueError: ``splits`` does not fit the rows of ``array``.
        CollectiveMismatch: as :func:`allgather`.
    """
    return alltoall_async(array, splits, name).wait()


def alltoall_async(
    array: A, splits: Sequence[int] | None = None, name: str | None = None
) -> Handle[A | tuple[A, list[int]]]:
    """Like :func:`alltoall`, but waits only for the splits of the other ranks. ``array`` is copied first."""
    queue = lifecycle.collective_queue("alltoall")
    local = Target(array, False).memory
    called = label("alltoall", name, [local])
    sent = _splits(splits, local.rows, queue.size)
    kind = str(local).encode()
    exchanged = queue.allgather_bytes(b"".join((_LENGTH.pack(len(kind)), kind, *map(_LENGTH.pack, sent))), called)
    exchanged.wait()
    answers = [_kind(data) for data in cast(list[bytes], exchanged.result())]
    _check_kinds([kind for kind, _ in answers], called)
    received = [_LENGTH.unpack_from(data, 8 * queue.rank)[0] for _, data in answers]
    family = family_of(array)
    result = family.empty(array, (sum(received), *local.shape[1:]))
    to = family.memory(result)
    assert to is not None, "a new array is contiguous"
    work = queue.alltoall(
        (local.address, local.nbytes),
        [rows * local.row_nbytes for rows in sent],
        (to.address, to.nbytes),
        [rows * local.row_nbytes for rows in received],
        (local, to),
        called,
    )

    def arrived() -> A | tuple[A, list[int]]:
        array_ = family.result(result, array)
        return array_ if splits is None else (array_, received)

    return Handle([work], arrived)


def _broadcast(array: A, root: int, name: str | None, in_place: bool) -> Handle[A]:
    queue = lifecycle.collective_queue("broadcast")
    if not 0 <= root < queue.size:
        raise ValueError(f"broadcast from rank {root}: there are the ranks 0 to {queue.size - 1}")
    target = Target(array, in_place)
    memory = target.memory
    called = label("broadcast", name, [memory], f"from rank {root}")
    work = queue.broadcast(memory.address, memory.nbytes, root, memory, called)
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
    """The type and shape that a rank sent, and the data that follows them."""
    (length,) = _LENGTH.unpack_from(data)
    return data[8 : 8 + length].decode(), memoryview(data)[8 + length :]


def _part(data: bytes) -> tuple[str, int, Memory]:
    """The type and shape that a rank sent, its number of rows, and its elements."""
    kind, rest = _kind(data)
    (rows,) = _LENGTH.unpack_from(rest)
    first = len(data) - len(rest) + 8
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
    return kind, rows, Memory(address + first, (len(data) - first,), "uint8", 1, data)


def _check_kinds(kinds: list[str], called: str) -> None:
    """Raises unless all ranks have the same type and the same dimensions except for the first."""
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
