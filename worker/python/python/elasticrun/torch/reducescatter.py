"""reducescatter: combines tensors element by element; each rank gets a part of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from elasticrun.process_sets import global_process_set, require_global
from elasticrun.reductions import Adasum, Average, Reduction, Sum, name_of

from .allgather import gather_rows
from .compression import Compression
from .handle import Handle, synchronize
from .inflight import Inflight, joined
from .memory import element, refuse_sparse, scale
from .mismatch_check import Announcement, Call
from .rounds import host_transport, size, transport
from .transport import reduction_for


def shares(rows: int, ranks: int) -> list[int]:
    """Number of rows of each rank. If they do not divide evenly, the first ranks get one more."""
    return [rows // ranks + (rank < rows % ranks) for rank in range(ranks)]


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: Reduction = Average,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[list[torch.Tensor]]:
    """Starts :func:`grouped_reducescatter`; :func:`synchronize` returns a list of new tensors."""
    require_global(process_set)
    host = host_transport()
    for tensor in tensors:
        _check(tensor, op, prescale_factor * postscale_factor)
    factors = [prescale_factor, postscale_factor]
    call = Call.from_tensors("reducescatter", name, tensors, op=name_of(op), scale=factors)
    announcement = Announcement(host, call)
    started = [
        _start(tensor, name_of(op), prescale_factor, postscale_factor, host.rank, host.size, name) for tensor in tensors
    ]
    pending = joined([pending for pending, _ in started])
    return Handle(pending, announcement, lambda: [share for _, share in started])


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: Reduction = Average,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[torch.Tensor]:
    """Starts :func:`reducescatter`; :func:`synchronize` returns a new tensor."""
    handle = grouped_reducescatter_async([tensor], name, op, process_set, prescale_factor, postscale_factor)
    return handle.then(lambda shares: shares[0])


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: Any = Compression.none,
    op: Reduction = Average,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Combines the tensors of all ranks, and returns to each rank its share of the rows.

    It is differentiable: gradients are gathered from all ranks.

    Args:
        tensor: any shape with at least one dimension, the same on all ranks. If the rows do not divide evenly, the first
            ranks get one more.
        name: name of the operation in errors. Ranks compare it.
        compression: compression of the tensor, from :class:`Compression`.
        op: Average, Sum, Min, Max or Product.
        process_set: only :data:`global_process_set`.
        prescale_factor: factor of the inputs. Scaled integers are rounded towards zero, as by ``allreduce``.
        postscale_factor: factor of the results.

    Raises:
        WorkersFailed: the round is over.
        CollectiveMismatch: ranks made different calls, or calls with different shapes or types.
        TypeError: it is no tensor, or has a type that cannot be combined or scaled.
        ValueError: the tensor has no dimension.
    """
    require_global(process_set)
    _check(tensor, op, prescale_factor * postscale_factor)
    compressed, context = compression.compress(tensor)
    share = _Reducescatter.apply(compressed, name, op, prescale_factor, postscale_factor)
    result: torch.Tensor = compression.decompress(share, context)
    return result


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: Any = Compression.none,
    op: Reduction = Average,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """:func:`reducescatter` of several tensors. Returns a list."""
    return [
        reducescatter(tensor, name, compression, op, process_set, prescale_factor, postscale_factor)
        for tensor in tensors
    ]


def _check(tensor: torch.Tensor, op: Reduction, factor: float) -> None:
    refuse_sparse(tensor, "reducescatter")
    element(tensor.dtype)
    reduction_for(tensor.dtype, name_of(op), factor)
    if tensor.dim() == 0:
        raise ValueError("reducescatter of a scalar: it shares rows, so a dimension is needed")
    if op == Adasum:
        raise NotImplementedError("reducescatter with Adasum is not offered: use allreduce")


def _start(
    tensor: torch.Tensor,
    op: str,
    prescale: float,
    postscale: float,
    rank: int,
    ranks: int,
    name: str | None,
) -> tuple[Inflight, torch.Tensor]:
    tensor = tensor.detach()
    counts = shares(tensor.shape[0], ranks)
    shape = tensor.shape[1:]
    max_rows = max(counts)
    block = tensor.new_empty((max_rows, *shape))
    if len(set(counts)) > 1:
        # All blocks must have the same size, so shorter ones are padded by a row.
        padded = tensor.new_zeros((ranks * max_rows, *shape))
        start = 0
        for other, count in enumerate(counts):
            padded[other * max_rows : other * max_rows + count].copy_(tensor[start : start + count])
            start += count
        tensor = padded
    pending = transport(tensor.device).reduce_scatter(tensor, block, op, prescale, name)
    share = block[: counts[rank]]
    if postscale == 1.0:
        return pending, share

    def finish() -> None:
        pending.wait()
        scale(share, postscale)

    return Inflight(pending.parts, finish), share


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, name: Any, op: Any, prescale: Any, postscale: Any) -> Any:
        ctx.rows = tensor.shape[0]
        ctx.factor = prescale * postscale
        ctx.op = op
        return synchronize(reducescatter_async(tensor, name, op, prescale_factor=prescale, postscale_factor=postscale))

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        factor = ctx.factor * (size() if ctx.op == Sum else 1)
        if factor != 1.0:
            gradient = gradient * factor
        pending, output = gather_rows(gradient.contiguous(), shares(ctx.rows, size()))
        pending.wait()
        return output, None, None, None, None
