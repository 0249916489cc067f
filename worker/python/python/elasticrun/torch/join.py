"""join: a rank without data takes part in the operations of the others until they have none either."""

from __future__ import annotations

import torch

from elasticrun import errors

from . import adasum
from .mismatch_check import JOIN, Announcement, Call, allows_joined_ranks, mismatch
from .rounds import host_transport
from .transport import HostTransport


def join(device: int = -1) -> int:
    """Announces that this rank has no more data, and blocks until all ranks have done so.

    Meanwhile the rank contributes zeros to operations of the others: :func:`allreduce` and the steps of
    :func:`DistributedOptimizer`. An average still divides by the number of all ranks. Min, Max, Product and other
    collectives are errors until all ranks have joined.

    Args:
        device: accepted for Horovod compatibility, without effect. Zeros are in host memory.

    Returns:
        The rank that joined last; of several, the highest.

    Raises:
        WorkersFailed: the round is over.
        CollectiveMismatch: a rank calls an operation that joined ranks cannot take part in.
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
        if not allows_joined_ranks(call):
            raise errors.CollectiveMismatch(mismatch(rank, call, host.rank, calls[host.rank]))
        _contribute_zeros(host, call)


def _contribute_zeros(host: HostTransport, call: Call) -> None:
    """Makes the call that ``call`` announced, with zeros."""
    if call.kind == "gradients":
        from .buckets import reduce_zeros

        reduce_zeros(host, call)
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
