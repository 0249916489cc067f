"""Gradients on their way: buckets of them, reduced in one order while the backward pass goes on.

A bucket is one fused allreduce. Buckets hold parameters in the reverse of the model's order, which is about
the order that gradients come in, and start in one order on all ranks: a bucket waits for those before it.

Which parameters got a gradient may differ between ranks. All ranks reduce all of them, zeros where there is
none, and in the last bucket travels a mark for each parameter: what no rank computed stays ``None``.

Before the first bucket of a step goes an announcement (:mod:`.announce`): in a round's first step all that
the ranks must agree on, which is checked before anything is reduced; later only the layout's digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from elasticrun import errors

from .announce import Announcement, Call
from .pending import Pending
from .rounds import transport
from .transport import HostTransport, Transport

#: Bytes of a bucket; the first ones are small, so that reducing starts early.
BUCKET_BYTES = 25 << 20
FIRST_BUCKET_BYTES = 1 << 20


@dataclass(frozen=True)
class Bucket:
    """Parameters, by index, of one type on one device."""

    parameters: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def assign(parameters: Sequence[torch.Tensor], groups: Sequence[Sequence[int]] = ()) -> list[Bucket]:
    """Buckets of ``parameters``; what ``groups`` puts together (indices) stays together."""
    in_group = {index: group for group in groups for index in group}
    seen: set[int] = set()
    filling: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    sizes: dict[tuple[torch.dtype, torch.device], int] = {}
    buckets: list[Bucket] = []

    def close(key: tuple[torch.dtype, torch.device]) -> None:
        if filling.get(key):
            buckets.append(Bucket(tuple(filling.pop(key)), *key))
            sizes.pop(key)

    for index in reversed(range(len(parameters))):
        if index in seen:
            continue
        if index in in_group:
            seen.update(in_group[index])
            by_kind: dict[tuple[torch.dtype, torch.device], list[int]] = {}
            for member in in_group[index]:
                kind = parameters[member].dtype, parameters[member].device
                by_kind.setdefault(kind, []).append(member)
            buckets += [Bucket(tuple(members), *kind) for kind, members in by_kind.items()]
            continue
        parameter = parameters[index]
        key = parameter.dtype, parameter.device
        limit = FIRST_BUCKET_BYTES if not buckets else BUCKET_BYTES
        filling.setdefault(key, []).append(index)
        sizes[key] = sizes.get(key, 0) + parameter.numel() * parameter.element_size()
        if sizes[key] >= limit:
            close(key)
    for key in list(filling):
        close(key)
    return buckets


class Layout:
    """What ranks must agree on to reduce gradients together.

    Attributes:
        parameters: the parameters, in the model's order.
        names: one for each parameter.
        buckets: their buckets.
    """

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        names: Sequence[str],
        buckets: Sequence[Bucket],
        op: str,
        scale: tuple[float, float],
        wire: Sequence[torch.dtype],
    ) -> None:
        self.parameters = list(parameters)
        self.names = list(names)
        self.buckets = list(buckets)
        self.op = op
        self.scale = scale
        described = tuple(
            (str(dtype).removeprefix("torch."), tuple(parameter.shape))
            for parameter, dtype in zip(parameters, wire, strict=True)
        )
        detail = {
            "op": op,
            "scale": list(scale),
            "names": self.names,
            "buckets": [list(bucket.parameters) for bucket in buckets],
        }
        self.call = Call("gradients", None, described, detail)
        digest = hashlib.sha256(self.call.encode()).hexdigest()[:16]
        self.short = Call("gradients", None, (), {"op": op, "layout": digest})
        _known[digest] = self.call


#: Layouts by their digest, for ranks that have joined. A process has few.
_known: dict[str, Call] = {}


class Reduction:
    """One step's gradients on their way."""

    def __init__(self, layout: Layout, host: HostTransport, first: bool) -> None:
        self.layout = layout
        self.host = host
        self._at = 0
        self._under_way: list[Pending] = []
        self._announcement = Announcement(self.host, layout.call if first else layout.short)
        if first:
            # Before anything is reduced: an error that names the parameter, and a group that lives on.
            self._announcement.check()
        self._marks = torch.empty(0)

    def start_ready(self, ready: Sequence[bool], gradients: Sequence[torch.Tensor | None], all_of_them: bool) -> None:
        """Starts the buckets that are next and complete; with ``all_of_them`` all that are left.

        ``gradients`` are the tensors that travel, and are reduced in place.
        """
        buckets = self.layout.buckets
        while self._at < len(buckets):
            bucket = buckets[self._at]
            if not all_of_them and not all(ready[index] for index in bucket.parameters):
                return
            self._at += 1
            tensors = [present(gradients[index]) for index in bucket.parameters]
            if self._at == len(buckets):
                # What is left of each 1 after the reduction matters only in that it is not 0.
                ones = [float(one) for one in ready]
                self._marks = torch.tensor(ones, dtype=tensors[0].dtype, device=bucket.device)
                tensors.append(self._marks)
            carrier: Transport = transport(bucket.device)
            self._under_way.append(carrier.allreduce(tensors, self.layout.op, *self.layout.scale))

    def starts_next(self, index: int) -> bool:
        """Whether a bucket may be complete now that parameter ``index`` has its gradient."""
        buckets = self.layout.buckets
        return self._at < len(buckets) and index in buckets[self._at].parameters

    def wait(self) -> list[bool]:
        """Blocks until all is reduced; which parameters have a gradient on any rank.

        Raises:
            WorkersFailed: the round is over.
            CollectiveMismatch: the ranks have different models.
        """
        try:
            for pending in self._under_way:
                pending.wait()
        except errors.ElasticrunError as error:
            self._announcement.explain(error)
            raise
        self._announcement.check()
        return [mark > 0 for mark in self._marks.tolist()]


def present(gradient: torch.Tensor | None) -> torch.Tensor:
    """``gradient``, which is there."""
    assert gradient is not None
    return gradient


def take_part(host: HostTransport, call: Call) -> None:
    """Reduces zeros where the others reduce the gradients of ``call``, for a rank that has joined."""
    digest = call.detail.get("layout")
    full = call if digest is None else _known[digest]
    if digest is None:
        _known[hashlib.sha256(full.encode()).hexdigest()[:16]] = full
    buckets = full.detail["buckets"]
    for place, bucket in enumerate(buckets):
        described = [full.tensors[index] for index in bucket]
        if place == len(buckets) - 1:
            described.append((described[0][0], (len(full.tensors),)))
        zeros = [torch.zeros(shape, dtype=getattr(torch, dtype)) for dtype, shape in described]
        host.allreduce(zeros, full.detail["op"], *full.detail["scale"]).wait()
