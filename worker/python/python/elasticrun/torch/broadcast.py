"""broadcast: one rank's tensor to all."""

from __future__ import annotations

from typing import Any

import torch

from elasticrun.process_sets import global_process_set, require_global

from .announce import Announcement, Call
from .handle import Handle, synchronize
from .memory import refuse_sparse
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
    """Starts :func:`broadcast_`; :func:`synchronize` gives ``tensor``."""
    require_global(process_set)
    refuse_sparse(tensor, "broadcast")
    host = host_transport()
    check_root(root_rank, host.size)
    announcement = Announcement(host, Call.of("broadcast", name, [tensor], root=root_rank))
    pending = transport(tensor.device).broadcast(tensor, root_rank, name)
    return Handle(pending, announcement, lambda: tensor)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts :func:`broadcast`; :func:`synchronize` gives a new tensor."""
    refuse_sparse(tensor, "broadcast")
    return broadcast_async_(tensor.detach().clone(), root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> torch.Tensor:
    """As :func:`broadcast`, in place and without gradients."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> torch.Tensor:
    """The tensor of rank ``root_rank``, as a new tensor on all ranks.

    Gradients flow through it: that of the root's input is the average of the outputs', that of the other
    ranks' inputs is zero.

    Args:
        tensor: any type and shape, the same on all ranks.
        root_rank: whose tensor it is.
        name: compared between ranks, and named by errors.
        process_set: only :data:`global_process_set`.

    Raises:
        WorkersFailed: the round is over.
        CollectiveMismatch: ranks called different things, or with different shapes or types.
        ValueError: there is no such rank.
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
