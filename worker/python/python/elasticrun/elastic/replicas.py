"""Whether what workers have committed is one state, when the bytes of their commits differ.

Bytes differ for many a good reason: statistics of batch normalisation, random generators, a worker's own time. The next
round goes on with what rank 0 committed then. But a stage of a pipeline or a shard of a tensor must not be overwritten
by that of another worker. So all workers tell each other what arrays they have, and, of those that are the same in all
replicas (parameters of modules), a digest; where the digests differ, a sketch, which tells how far two arrays are apart.

- Arrays in the same place must be of one type and shape, and a parameter must be there in all.
- Parameters may differ by rounding, which adds up where processors differ: :data:`_ROUNDING`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from .. import codec
from ..errors import StateError

__all__ = ["Replicas"]

#: By how much of their norm parameters of replicas may differ; those of 16 bits and less round more coarsely.
_ROUNDING, _COARSE_ROUNDING = 1e-3, 3e-2
_COARSE = ("float16", "bfloat16", "float8")
#: Most parameters that are sketched, the largest of those that differ.
_SKETCHES = 32

#: Place of an array to its layout, its bytes, and the digest of its values if they are replicated.
Table = dict[str, tuple[str, int, int | None]]


class Replicas:
    """The workers of a round that hold its base, before anybody takes over another one's state.

    Called again and again with what the call before gave in all ranks, until it gives nothing.
    """

    def __init__(self) -> None:
        self._tables: list[Table] | None = None

    def __call__(self, own: tuple[bytes, Sequence[memoryview]] | None, heard: list[bytes] | None) -> bytes | None:
        """What to tell all workers, which all call it; None at the end.

        Args:
            own: head and buffers of the commit; None in a worker that does not hold it.
            heard: what the last call gave in each rank.

        Raises:
            StateError: the workers hold different states; the same in all.
        """
        if heard is None:
            return _encoded(None if own is None else _table(*own))
        told = [json.loads(words) for words in heard]
        if self._tables is not None:
            _check_sketches(told, self._tables)
            return None
        self._tables = told
        differing = _check_layouts(told)
        if not differing:
            return None
        return _encoded(None if own is None else _sketches(*own, differing))


def _encoded(told: object) -> bytes:
    return json.dumps(told).encode()


def _table(head: bytes, buffers: Sequence[memoryview]) -> Table:
    return {
        one.path: (
            one.layout,
            len(buffers[one.index]),
            one.coder.digest(buffers[one.index]) if one.replicated else None,
        )
        for one in codec.describe(head)
    }


def _sketches(head: bytes, buffers: Sequence[memoryview], paths: Sequence[str]) -> dict[str, list[float]]:
    return {
        one.path: one.coder.sketch(one.meta, buffers[one.index]) for one in codec.describe(head) if one.path in paths
    }


def _check_layouts(tables: list[Any]) -> list[str]:
    """The places of replicated arrays whose digests differ, the largest.

    Raises:
        StateError: two workers have arrays of other types or shapes, or one has a parameter that the other has not.
    """
    first, *others = [(rank, table) for rank, table in enumerate(tables) if table]
    rank, own = first
    differing = set()
    for other_rank, other in others:
        for path in {**own, **other}:
            one, two = own.get(path), other.get(path)
            if one is not None and two is not None:
                if one[0] != two[0]:
                    raise _no_replicas(path, rank, one[0], other_rank, two[0])
                if one[2] != two[2]:
                    differing.add(path)
            elif (one or two)[2] is not None:
                raise _no_replicas(
                    path,
                    rank,
                    one[0] if one else "not there",
                    other_rank,
                    two[0] if two else "not there",
                )
    return sorted(differing, key=lambda path: (-own[path][1], path))[:_SKETCHES]


def _check_sketches(sketches: list[Any], tables: list[Any]) -> None:
    """Raises StateError if two workers' parameters differ by more than rounding."""
    first, *others = [(rank, sketch) for rank, sketch in enumerate(sketches) if sketch]
    rank, own = first
    # In the order of the state.
    paths = [path for path in tables[rank] if path in own]
    for other_rank, other in others:
        for path in paths:
            layout = tables[rank][path][0]
            apart = _distance(own[path], other[path])
            if apart > (_COARSE_ROUNDING if layout.startswith(_COARSE) else _ROUNDING):
                raise _no_replicas(path, rank, layout, other_rank, "one with other values")


def _distance(one: Sequence[float], two: Sequence[float]) -> float:
    """How far apart two arrays are about, in parts of the larger norm."""
    if not all(map(math.isfinite, (*one, *two))):
        return 0.0 if [math.isfinite(n) for n in one] == [math.isfinite(n) for n in two] else 1.0
    largest = max(one[0], two[0])
    return max(abs(a - b) for a, b in zip(one, two, strict=True)) / largest if largest else 0.0


def _no_replicas(path: str, rank: int, what: str, other_rank: int, other: str) -> StateError:
    return StateError(
        f"{path} of rank {rank} is {what}, that of rank {other_rank} is {other}, in the commit that the round begins with:"
        " a state is replicated, the same in all workers. Stages of a pipeline, shards of a tensor and models that are"
        " trained apart (LocalSGD) cannot be kept in it"
    )
