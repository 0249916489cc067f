"""Checks whether the commits of workers are replicas of one state, if their bytes differ.

Bytes may differ for good reasons: statistics of batch normalisation, random generators, local times. The next round then
continues with the commit of rank 0. But a stage of a pipeline or a shard of a tensor must not be overwritten by that of
another worker. All workers therefore exchange descriptions of their arrays, with digests of those that are replicated
(parameters of modules). Where digests differ, they exchange sketches, which estimate the distance of two arrays.

- Arrays with the same path must have the same type and shape, and a parameter must exist in all workers.
- Parameters may differ by rounding, which accumulates on different processors: :data:`_ROUNDING`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from .. import codec
from ..errors import StateError

__all__ = ["Replicas"]

#: Maximum distance of replicated parameters, as a part of their norm. Types of 16 bits and less round more coarsely.
_ROUNDING, _COARSE_ROUNDING = 1e-3, 3e-2
_COARSE = ("float16", "bfloat16", "float8")
#: Maximum number of parameters that are sketched: the largest of those that differ.
_SKETCHES = 32

#: Maps the path of an array to its layout, its size in bytes, and the digest of its values if it is replicated.
Table = dict[str, tuple[str, int, int | None]]


class Replicas:
    """Compares the commits of the workers that hold the base of a round, before any state is overwritten.

    It is called repeatedly with the answers of all ranks to the previous call, until it returns None.
    """

    def __init__(self) -> None:
        self._tables: list[Table] | None = None

    def __call__(self, local: tuple[bytes, Sequence[memoryview]] | None, answers: list[bytes] | None) -> bytes | None:
        """The next answer of this worker to all others; None at the end. All workers call it.

        Args:
            local: head and buffers of the commit; None in a worker that does not hold it.
            answers: the answer of each rank to the previous call; None in the first call.

        Raises:
            StateError: the workers hold different states. All workers raise the same error.
        """
        if answers is None:
            return _encoded(None if local is None else _table(*local))
        decoded = [json.loads(answer) for answer in answers]
        if self._tables is not None:
            _check_sketches(decoded, self._tables)
            return None
        self._tables = decoded
        differing = _check_layouts(decoded)
        if not differing:
            return None
        return _encoded(None if local is None else _sketches(*local, differing))


def _encoded(answer: object) -> bytes:
    return json.dumps(answer).encode()


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
    """The paths of replicated arrays whose digests differ, the largest arrays first.

    Raises:
        StateError: arrays of two workers differ in type or shape, or a worker lacks a parameter.
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
    """The estimated distance of two arrays, as a part of the larger norm."""
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
