"""Announces each call of a rank to all ranks, to detect mismatches.

A mismatch raises an error that names rank and tensor. Announcements also let ranks without data take part
(:func:`elasticrun.torch.join`). An announcement is one small allgather. It precedes the announced operation on the same queue,
and causes no extra wait: its answers are read together with the result of the operation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from elasticrun import errors

from .transport import HostTransport


@dataclass(frozen=True)
class Call:
    """One rank's call.

    Attributes:
        kind: name of the function, such as ``allreduce``.
        name: the user's name of the tensor, if any.
        tensors: type and shape of each tensor.
        detail: further arguments that must be equal on all ranks (reduction, root, factors).
    """

    kind: str
    name: str | None = None
    tensors: tuple[tuple[str, tuple[int, ...]], ...] = ()
    detail: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_tensors(cls, kind: str, name: str | None, tensors: Sequence[torch.Tensor], **detail: Any) -> Call:
        """The call of ``kind`` on ``tensors``."""
        described = tuple((str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)) for tensor in tensors)
        return cls(kind, name, described, detail)

    def encode(self) -> bytes:
        """Encodes the call. Equal calls have equal bytes."""
        return json.dumps([self.kind, self.name, self.tensors, self.detail], sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> Call:
        """Decodes the call of another rank."""
        kind, name, tensors, detail = json.loads(data)
        return cls(kind, name, tuple((dtype, tuple(shape)) for dtype, shape in tensors), detail)

    def __str__(self) -> str:
        words = [f"{dtype}{list(shape)}" for dtype, shape in self.tensors[:3]]
        if len(self.tensors) > 3:
            words.append(f"... {len(self.tensors)} tensors")
        words += [f"{key}={value}" for key, value in sorted(self.detail.items())]
        name = f" {self.name!r}" if self.name else ""
        return f"{self.kind}{name}({', '.join(words)})"


#: The kind of call that a rank without data announces. ``detail`` tells whether it has done so before.
JOIN = "join"


class Announcement:
    """Exchanges the call of this rank with those of all others. The exchange runs in the background."""

    __slots__ = ("_answers", "_call", "_encoded", "_work")

    def __init__(self, transport: HostTransport, call: Call) -> None:
        self._call = call
        self._encoded = call.encode()
        self._answers: list[bytes] | None = None
        self._work = transport.queue.allgather_bytes(self._encoded)

    def done(self) -> bool:
        """Whether the answers have arrived."""
        return self._answers is not None or self._work.poll()

    def answers(self) -> list[bytes]:
        """The encoded calls of all ranks, in order of rank. Blocks until they have arrived.

        Raises:
            WorkersFailed: the round is over.
        """
        if self._answers is None:
            self._work.wait()
            self._answers = cast(list[bytes], self._work.result())
        return self._answers

    def calls(self) -> list[Call]:
        """The calls of all ranks, in order of rank. Blocks until they have arrived."""
        return [self._call if data == self._encoded else Call.decode(data) for data in self.answers()]

    def check(self) -> None:
        """Blocks until the answers have arrived, and compares them.

        Raises:
            CollectiveMismatch: a rank made another call. :func:`elasticrun.torch.join` matches an allreduce.
        """
        answers = self.answers()
        if all(data == self._encoded for data in answers):
            return
        mine = answers.index(self._encoded)
        for rank, data in enumerate(answers):
            if data == self._encoded:
                continue
            other = Call.decode(data)
            if other.kind == JOIN and allows_joined_ranks(self._call):
                continue
            raise errors.CollectiveMismatch(mismatch(rank, other, mine, self._call))

    def explain(self, error: errors.ElasticrunError) -> None:
        """Looks for a mismatch that explains why the announced operation failed with ``error``.

        Raises:
            CollectiveMismatch: ranks made different calls.
        """
        try:
            self.check()
        except errors.CollectiveMismatch as mismatched:
            raise mismatched from error
        except errors.ElasticrunError:
            # The announcement failed as well, with a less specific error.
            pass


def allows_joined_ranks(call: Call) -> bool:
    """Whether joined ranks can take part in ``call``, because zeros are neutral in it."""
    return call.kind in ("allreduce", "gradients") and call.detail["op"] in _SUMS


_SUMS = ("sum", "average", "adasum")


def mismatch(rank: int, call: Call, other_rank: int, other: Call) -> str:
    """One line about two ranks that made different calls. It names the first tensor that differs."""
    if call.kind == JOIN or other.kind == JOIN:
        caller, what = (other_rank, other) if call.kind == JOIN else (rank, call)
        joined = rank if call.kind == JOIN else other_rank
        return (
            f"rank {joined} has joined, and rank {caller} calls {what}: only sums and averages (allreduce) go on then"
        )
    names = call.detail.get("names"), other.detail.get("names")
    if call.kind == other.kind and names[0] and names[1]:
        for index, (one, two) in enumerate(zip(call.tensors, other.tensors, strict=False)):
            if one != two or names[0][index] != names[1][index]:
                return (
                    f"parameter {names[0][index]!r} of rank {rank} is {one[0]}{list(one[1])}, but "
                    f"parameter {names[1][index]!r} of rank {other_rank} is {two[0]}{list(two[1])}: "
                    "build the same model on all ranks"
                )
        if len(call.tensors) != len(other.tensors):
            return (
                f"rank {rank} has {len(call.tensors)} parameters, but rank {other_rank} has "
                f"{len(other.tensors)}: build the same model on all ranks"
            )
    return (
        f"rank {rank} called {call}, but rank {other_rank} called {other}: "
        "make the same calls in the same order on all ranks"
    )
