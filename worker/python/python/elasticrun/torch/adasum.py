"""Adasum: a sum that does not count twice what two gradients have in common.

Two gradients are combined as ``(1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b``: orthogonal ones are added,
parallel ones averaged (Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020). More
than two are combined in a tree by recursive doubling: at step k ranks that differ in bit k exchange what
they have, so that after log2(size) exchanges all have the result. Ranks beyond the largest power of two
are combined with a partner first and get the result from it at the end.

Memory of the host only. Dot products are summed in 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .transport import HostTransport


def pair(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """The combination of two tensors of one shape, in their own type."""
    a, b = one.double(), two.double()
    dot = torch.dot(a.reshape(-1), b.reshape(-1))
    a_squared = torch.dot(a.reshape(-1), a.reshape(-1))
    b_squared = torch.dot(b.reshape(-1), b.reshape(-1))
    a_share = 1.0 - dot / (2.0 * a_squared) if a_squared > 0 else 1.0
    b_share = 1.0 - dot / (2.0 * b_squared) if b_squared > 0 else 1.0
    return (a * a_share + b * b_share).to(one.dtype)


def combine(
    transport: HostTransport,
    tensors: Sequence[torch.Tensor],
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> None:
    """Combines ``tensors`` with those of all ranks, in place; each tensor by itself.

    Raises:
        TypeError: the tensors are no floats.
        NotImplementedError: the tensors are not in memory of the host.
        WorkersFailed: the round is over.
    """
    for tensor in tensors:
        if not tensor.is_floating_point():
            raise TypeError(f"Adasum of {tensor.dtype}: it is defined for floats only")
        if tensor.device.type != "cpu":
            raise NotImplementedError(
                f"Adasum on {tensor.device} is not offered: use tensors in host memory, or another op"
            )
    with torch.no_grad():
        mine = [tensor.detach() * prescale for tensor in tensors]
        mine = _tree(transport, mine)
        for tensor, result in zip(tensors, mine, strict=True):
            tensor.detach().copy_(result * postscale)


def _tree(transport: HostTransport, mine: list[torch.Tensor]) -> list[torch.Tensor]:
    rank, size = transport.rank, transport.size
    inner = 1 << (size.bit_length() - 1)
    extra = size - inner
    if extra:
        # The last ranks give theirs to the first ones.
        theirs = _swap(transport, mine, rank - inner if rank >= inner else rank + inner)
        if rank < extra:
            mine = [pair(a, b) for a, b in zip(mine, theirs, strict=True)]
    bit = 1
    while bit < inner:
        theirs = _swap(transport, mine, rank ^ bit if rank < inner else rank)
        if rank < inner:
            # In one order on both sides, so that both get the same bits.
            first, second = (mine, theirs) if rank & bit == 0 else (theirs, mine)
            mine = [pair(a, b) for a, b in zip(first, second, strict=True)]
        bit <<= 1
    if extra:
        theirs = _swap(transport, mine, rank - inner if rank >= inner else rank + inner)
        if rank >= inner:
            mine = theirs
    return mine


def _swap(transport: HostTransport, mine: list[torch.Tensor], partner: int) -> list[torch.Tensor]:
    """The partner's tensors; our own if the partner is this rank or none. All ranks call it."""
    with_whom = partner if 0 <= partner < transport.size and partner != transport.rank else None
    theirs = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in mine]
    for own, other in zip(mine, theirs, strict=True):
        counts = [own.numel() if rank == with_whom else 0 for rank in range(transport.size)]
        transport.alltoall(own, counts, other, counts).wait()
    return theirs if with_whom is not None else mine
