"""broadcast: copies the tensor of one rank to all ranks."""

from __future__ import annotations

from typing import Any

import torch

from elasticrun.process_sets import global_process_set, require_global

from .handle import Handle, synchronize
from .memory import refuse_sparse
from .mismatch_check import Announcement, Call
from .rounds import host_transport, rank, transport


def check_root(root_rank: int, size: int) -> None:
    """Raises ValueError unless ``root_rank`` is a rank."""
    if not 0 <= root_rank < size:
        raise ValueError(f"root_rank {root_rank} is no rank: there are ranks 0 to {size - 1}")


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts :func:`broadcast_`; :func:`synchronize` returns ``tensor``."""
    require_global(process_set)
    refuse_sparse(tensor, "broadcast")
    host = host_transport()
    check_root(root_rank, host.size)
    announcement = Announcement(host, Call.from_tensors("broadcast", name, [tensor], root=root_rank))
    pending = transport(tensor.device).broadcast(tensor, root_rank, name)
    return Handle(pending, announcement, lambda: tensor)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts :func:`broadcast`; :func:`synchronize` returns a new tensor."""
    refuse_sparse(tensor, "broadcast")
    return broadcast_async_(tensor.detach().clone(), root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> torch.Tensor:
    """Like :func:`broadcast`, in place and without gradients."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> torch.Tensor:
    """Copies the tensor of rank ``root_rank`` to a new tensor on all ranks.

    It is differentiable: the gradient of the root's input is the average of the outputs' gradients, and that of other inputs
    is zero.

    Args:
        tensor: any type and shape, the same on all ranks.
        root_rank: rank of the tensor to send.
        name: name of the operation in errors. Ranks compare it.
        process_set: only :data:`global_process_set`.

    Raises:
        WorkersFailed: the round is over.
        CollectiveMismatch: ranks made different calls, or calls with different shapes or types.
        ValueError: there is no rank ``root_rank``.
    """
    require_global(process_set)
    result: torch.Tensor = _Broadcast.apply(tensor, root_rank, name)
    return result


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, root_rank: Any, name: Any) -> Any:
        ctx.root_rank = root_rank
        return synchronize(broadcast_async(tensor, root_rank, name))

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        from .allreduce import allreduce

        average = allreduce(gradient)
        if rank() != ctx.root_rank:
            average = torch.zeros_like(average)
        return average, None, None
