"""Reduces gradients in buckets, while the backward pass continues.

A bucket is one fused allreduce. Buckets contain parameters in the reverse order of the model, which is about the order in
which gradients become available. All ranks start buckets in the same order: a bucket waits for its predecessors.

Ranks may have gradients for different parameters. All ranks reduce all parameters, with zeros for missing gradients. The last
bucket also contains a mark for each parameter. A gradient that no rank has computed stays ``None``.

An announcement (:mod:`.mismatch_check`) precedes the first bucket of a step. In the first step of a round it contains the whole
layout, which is checked before any reduction. Later announcements contain only a digest of the layout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from elasticrun import _repeated_failure, errors

from .inflight import Inflight
from .mismatch_check import Announcement, Call
from .rounds import transport
from .transport import HostTransport, Transport

#: Bytes of a bucket. The first buckets are smaller, so that reduction starts early.
BUCKET_BYTES = 25 << 20
FIRST_BUCKET_BYTES = 1 << 20


@dataclass(frozen=True)
class Bucket:
    """Parameters, by index, of one type on one device."""

    parameters: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def assign(parameters: Sequence[torch.Tensor], groups: Sequence[Sequence[int]] = ()) -> list[Bucket]:
    """Assigns ``parameters`` to buckets. The parameters of each of ``groups`` (indices) share a bucket."""
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
    """The properties that ranks must share to reduce gradients together.

    Attributes:
        parameters: the parameters, in the model's order.
        names: name of each parameter.
        buckets: buckets of the parameters.
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
        _layouts_by_digest[digest] = self.call


#: Layouts by digest, for ranks that have joined. A process has few of them.
_layouts_by_digest: dict[str, Call] = {}


class BucketReduction:
    """The reduction of one step's gradients."""

    def __init__(self, layout: Layout, host: HostTransport, first: bool) -> None:
        self.layout = layout
        self.host = host
        self._next_bucket = 0
        self._inflight: list[Inflight] = []
        self._announcement = Announcement(self.host, layout.call if first else layout.short)
        if first:
            # Checked before any reduction, so that the error names the parameter and the round stays usable.
            self._announcement.check()
        self._marks = torch.empty(0)

    def start_ready(self, ready: Sequence[bool], gradients: Sequence[torch.Tensor | None], flush: bool) -> None:
        """Starts the next buckets that are complete; with ``flush``, all that remain.

        ``gradients`` are the tensors to send, which are reduced in place.
        """
        buckets = self.layout.buckets
        while self._next_bucket < len(buckets):
            bucket = buckets[self._next_bucket]
            if not flush and not all(ready[index] for index in bucket.parameters):
                return
            self._next_bucket += 1
            tensors = [present(gradients[index]) for index in bucket.parameters]
            if self._next_bucket == len(buckets):
                # A mark is 1 where a gradient exists. After the reduction it only matters whether it is 0.
                ones = [float(one) for one in ready]
                self._marks = torch.tensor(ones, dtype=tensors[0].dtype, device=bucket.device)
                tensors.append(self._marks)
            carrier: Transport = transport(bucket.device)
            self._inflight.append(carrier.allreduce(tensors, self.layout.op, *self.layout.scale))

    def starts_next(self, index: int) -> bool:
        """Whether the gradient of parameter ``index`` may complete the next bucket."""
        buckets = self.layout.buckets
        return self._next_bucket < len(buckets) and index in buckets[self._next_bucket].parameters

    def wait(self) -> list[bool]:
        """Blocks until all gradients are reduced. Returns which parameters have a gradient on any rank.

        Raises:
            WorkersFailed: the round is over.
            CollectiveMismatch: the ranks have different models.
        """
        try:
            for pending in self._inflight:
                pending.wait()
        except errors.ElasticrunError as error:
            self._announcement.explain(error)
            _repeated_failure.note(error)
            raise
        self._announcement.check()
        return [mark > 0 for mark in self._marks.tolist()]


def present(gradient: torch.Tensor | None) -> torch.Tensor:
    """``gradient``, which must not be None."""
    assert gradient is not None
    return gradient


def reduce_zeros(host: HostTransport, call: Call) -> None:
    """Contributes zeros to the reduction of the gradients of ``call``, for a rank that has joined."""
    digest = call.detail.get("layout")
    full = call if digest is None else _layouts_by_digest[digest]
    if digest is None:
        _layouts_by_digest[hashlib.sha256(full.encode()).hexdigest()[:16]] = full
    buckets = full.detail["buckets"]
    for position, bucket in enumerate(buckets):
        described = [full.tensors[index] for index in bucket]
        if position == len(buckets) - 1:
            described.append((described[0][0], (len(full.tensors),)))
        zeros = [torch.zeros(shape, dtype=getattr(torch, dtype)) for dtype, shape in described]
        host.allreduce(zeros, full.detail["op"], *full.detail["scale"]).wait()
