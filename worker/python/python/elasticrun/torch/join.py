"""join: a rank without data stays with the others until they have none either."""

from __future__ import annotations

import torch

from elasticrun import errors

from . import adasum
from .announce import JOIN, Announcement, Call, goes_on, mismatch
from .rounds import host_transport
from .transport import HostTransport


def join(device: int = -1) -> int:
    """Says that this rank has no more data, and blocks until all ranks have said so.

    Meanwhile it takes part with zeros in what the others call: :func:`allreduce` and the steps of
    :func:`DistributedOptimizer`. An average divides by all ranks all the same. Min, Max and Product, and
    the other collectives, are errors until all have joined.

    Args:
        device: taken for Horovod's sake; zeros are in memory of the host.

    Returns:
        The rank that joined last; the highest of several.

    Raises:
        WorkersFailed: the round is over.
        CollectiveMismatch: a rank calls what cannot go on.
    """
    host = host_transport()
    again = False
    while True:
        calls = Announcement(host, Call(JOIN, detail={"again": again})).calls()
        again = True
        working = [(rank, call) for rank, call in enumerate(calls) if call.kind != JOIN]
        if not working:
            return max(rank for rank, call in enumerate(calls) if not call.detail["again"])
        rank, call = working[0]
        if not goes_on(call):
            raise errors.CollectiveMismatch(mismatch(rank, call, host.rank, calls[host.rank]))
        _take_part(host, call)


def _take_part(host: HostTransport, call: Call) -> None:
    """Calls what ``call`` announced, with zeros."""
    if call.kind == "gradients":
        from .buckets import take_part

        take_part(host, call)
        return
    zeros = [torch.zeros(shape, dtype=getattr(torch, dtype)) for dtype, shape in call.tensors]
    prescale, postscale = call.detail["scale"]
    if call.detail["op"] == "adasum":
        for tensor in zeros:
            adasum.combine(host, tensor, prescale, postscale)
        return
    kinds: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in zeros:
        kinds.setdefault(tensor.dtype, []).append(tensor)
    for alike in kinds.values():
        host.allreduce(alike, call.detail["op"], prescale, postscale).wait()
