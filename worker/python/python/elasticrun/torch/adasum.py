"""Adasum of torch tensors in host memory. Dot products are summed in 64 bits."""

from __future__ import annotations

import torch

from elasticrun.adasum import shares, tree

from .transport import HostTransport


def pair(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """Combines two tensors of the same shape and type."""
    a, b = one.double(), two.double()
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    a_share, b_share = shares(
        torch.dot(flat_a, flat_b).item(),
        torch.dot(flat_a, flat_a).item(),
        torch.dot(flat_b, flat_b).item(),
    )
    return (a * a_share + b * b_share).to(one.dtype)


def combine(
    transport: HostTransport,
    tensor: torch.Tensor,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> None:
    """Combines ``tensor`` with those of all ranks, in place.

    Raises:
        TypeError: the tensor has no floating-point type.
        NotImplementedError: the tensor is not in host memory.
        WorkersFailed: the round is over.
    """
    if not tensor.is_floating_point():
        raise TypeError(f"Adasum of {tensor.dtype}: it is defined for floats only")
    if tensor.device.type != "cpu":
        raise NotImplementedError(
            f"Adasum on {tensor.device} is not offered: use tensors in host memory, or another op"
        )

    def swap(local: torch.Tensor, partner: int | None) -> torch.Tensor:
        theirs = torch.empty_like(local, memory_format=torch.contiguous_format)
        counts = [local.numel() if rank == partner else 0 for rank in range(transport.size)]
        transport.alltoall(local, counts, theirs, counts).wait()
        return theirs

    with torch.no_grad():
        mine = tensor.detach() * prescale
        combined = tree(mine, transport.rank, transport.size, swap, pair)
        tensor.detach().copy_(combined * postscale)
