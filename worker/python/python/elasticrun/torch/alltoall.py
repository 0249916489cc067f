"""alltoall: each rank sends rows to each rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from elasticrun.process_sets import global_process_set, require_global

from . import layout
from .allgather import agree
from .handle import Handle, synchronize
from .memory import refuse_sparse
from .mismatch_check import Announcement, Call
from .rounds import host_transport, transport


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> Handle[Any]:
    """Starts :func:`alltoall`; :func:`synchronize` returns the received rows, and with splits the number of rows from each rank.

    The call waits until all ranks have made it, because the size of the result depends on all of them.
    """
    handle = _start(tensor, splits, name, process_set)
    return handle if splits is not None else handle.then(lambda received: received[0])


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> Any:
    """Sends rows of ``tensor`` to each rank and returns the received rows, in order of rank.

    It is differentiable: gradients are exchanged in the opposite direction.

    Args:
        tensor: the type and all dimensions except the first must be the same on all ranks.
        splits: number of rows for each rank, in order of rank. Default: the same number for each.
        name: name of the operation in errors. Ranks compare it.
        process_set: only :data:`global_process_set`.

    Returns:
        The received rows. With ``splits``: a pair of them and an int32 tensor with the number of rows from each rank.

    Raises:
        WorkersFailed: the round is over.
        CollectiveMismatch: ranks made different calls, or calls with shapes or types that do not fit.
        ValueError: the splits do not match the tensor.
    """
    output, received = _Alltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


def _start(
    tensor: torch.Tensor, splits: Any, name: str | None, process_set: Any
) -> Handle[tuple[torch.Tensor, torch.Tensor]]:
    require_global(process_set)
    refuse_sparse(tensor, "alltoall")
    tensor = tensor.detach()
    if tensor.dim() == 0:
        raise ValueError("alltoall of a scalar: it exchanges rows, so a dimension is needed")
    host = host_transport()
    given = None if splits is None else [int(split) for split in splits]
    counts = layout.row_splits("input", tensor, given, host.size)
    shape = tensor.shape[1:]
    wide = max(shape.numel(), 1)
    rows = given or [tensor.shape[0] // host.size] * host.size
    call = Call.from_tensors("alltoall", name, [tensor], rows=rows)
    calls = Announcement(host, call).calls()
    agree(call, host.rank, calls)
    received = [other.detail["rows"][host.rank] for other in calls]
    output = tensor.new_empty((sum(received), *shape))
    pending = transport(tensor.device).alltoall(
        tensor, counts, output, [count * wide if shape.numel() else 0 for count in received], name
    )
    result = output, torch.tensor(received, dtype=torch.int32)
    return Handle(pending, None, lambda: result)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, splits: Any, name: Any, process_set: Any) -> Any:
        output, received = synchronize(_start(tensor, splits, name, process_set))
        ctx.received = received
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, gradient: Any, _received: Any) -> tuple[Any, ...]:
        back, _ = synchronize(_start(gradient, ctx.received, None, global_process_set))
        return back, None, None, None
