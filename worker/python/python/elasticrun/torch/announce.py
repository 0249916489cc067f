"""What a rank is about to call, told to all: so that a difference is an error with names, and
a rank without data can take part (:func:`elasticrun.torch.join`).

An announcement is one small allgather. It runs in front of the operation that it announces, on the same
lane, and costs no wait: its answer is read when the operation's result is.
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
        kind: the function, such as ``allreduce``.
        name: the user's name of the tensor, if one was given.
        tensors: type and shape of each.
        detail: what else must be equal on all ranks (reduction, root, factors).
    """

    kind: str
    name: str | None = None
    tensors: tuple[tuple[str, tuple[int, ...]], ...] = ()
    detail: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: str, name: str | None, tensors: Sequence[torch.Tensor], **detail: Any) -> Call:
        """The call of ``kind`` on ``tensors``."""
        described = tuple((str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)) for tensor in tensors)
        return cls(kind, name, described, detail)

    def encode(self) -> bytes:
        """Bytes that are equal for equal calls."""
        return json.dumps([self.kind, self.name, self.tensors, self.detail], sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> Call:
        """The call that another rank encoded."""
        kind, name, tensors, detail = json.loads(data)
        return cls(kind, name, tuple((dtype, tuple(shape)) for dtype, shape in tensors), detail)

    def __str__(self) -> str:
        words = [f"{dtype}{list(shape)}" for dtype, shape in self.tensors[:3]]
        if len(self.tensors) > 3:
            words.append(f"... {len(self.tensors)} tensors")
        words += [f"{key}={value}" for key, value in sorted(self.detail.items())]
        name = f" {self.name!r}" if self.name else ""
        return f"{self.kind}{name}({', '.join(words)})"


#: What a rank announces that has no more data; ``detail`` says whether it has done so before.
JOIN = "join"


class Announcement:
    """The calls of all ranks, once :meth:`calls` has waited for them."""

    __slots__ = ("_answers", "_call", "_own", "_work")

    def __init__(self, transport: HostTransport, call: Call) -> None:
        self._call = call
        self._own = call.encode()
        self._answers: list[bytes] | None = None
        self._work = transport.lane.allgather_bytes(self._own)

    def done(self) -> bool:
        """Whether the answers are there."""
        return self._answers is not None or self._work.poll()

    def answers(self) -> list[bytes]:
        """The encoded calls of all ranks, in order; blocks until they are there.

        Raises:
            WorkersFailed: the round is over.
        """
        if self._answers is None:
            self._work.wait()
            self._answers = cast(list[bytes], self._work.result())
        return self._answers

    def calls(self) -> list[Call]:
        """The calls of all ranks, in order of rank; blocks until they are there."""
        return [self._call if data == self._own else Call.decode(data) for data in self.answers()]

    def check(self) -> None:
        """Blocks until the answers are there.

        Raises:
            CollectiveMismatch: a rank called something else, apart from :func:`elasticrun.torch.join`
                beside an allreduce.
        """
        answers = self.answers()
        if all(data == self._own for data in answers):
            return
        mine = answers.index(self._own)
        for rank, data in enumerate(answers):
            if data == self._own:
                continue
            other = Call.decode(data)
            if other.kind == JOIN and goes_on(self._call):
                continue
            raise errors.CollectiveMismatch(mismatch(rank, other, mine, self._call))

    def explain(self, error: errors.ElasticrunError) -> None:
        """What was announced failed with ``error``: says so with names, if ranks called different things.

        Raises:
            CollectiveMismatch: they did.
        """
        try:
            self.check()
        except errors.CollectiveMismatch as told:
            raise told from error
        except errors.ElasticrunError:
            # The announcement failed as well, and says less.
            pass


def goes_on(call: Call) -> bool:
    """Whether ranks that have joined take part in ``call``: zeros must be neutral in it."""
    return call.kind in ("allreduce", "gradients") and call.detail["op"] in _SUMS


_SUMS = ("sum", "average", "adasum")


def mismatch(rank: int, call: Call, other_rank: int, other: Call) -> str:
    """One line on two ranks that called different things; names the first tensor that differs."""
    if call.kind == JOIN or other.kind == JOIN:
        who, what = (other_rank, other) if call.kind == JOIN else (rank, call)
        joined = rank if call.kind == JOIN else other_rank
        return f"rank {joined} has joined, and rank {who} calls {what}: only sums and averages (allreduce) go on then"
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
