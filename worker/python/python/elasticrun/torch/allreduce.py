"""allreduce: combines the tensors of all ranks element by element. All ranks get bit for bit the same result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from elasticrun.process_sets import global_process_set, require_global
from elasticrun.reductions import Adasum, Average, Reduction, name_of, reduction_of

from . import adasum as _adasum
from .compression import Compression
from .handle import Handle, synchronize
from .inflight import Inflight, joined
from .memory import element, refuse_sparse
from .mismatch_check import Announcement, Call
from .rounds import host_transport, transport


def start(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: Reduction,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> Handle[list[torch.Tensor]]:
    """Starts one fused allreduce of ``tensors`` in place. The result of the handle is the list of tensors.

    Raises:
        TypeError: a tensor has a type that cannot be combined.
        NotImplementedError: a tensor is sparse.
    """
    tensors = list(tensors)
    kinds: dict[tuple[torch.dtype, str], list[torch.Tensor]] = {}
    for tensor in tensors:
        refuse_sparse(tensor, "allreduce")
        element(tensor.dtype)
        kinds.setdefault((tensor.dtype, tensor.device.type), []).append(tensor)
    host = host_transport()
    call = Call.from_tensors("allreduce", name, tensors, op=name_of(op), scale=[prescale, postscale])
    announcement = Announcement(host, call)
    if op == Adasum:
        # Its exchanges depend on values, so it runs synchronously.
        announcement.check()
        for tensor in tensors:
            _adasum.combine(host, tensor, prescale, postscale)
        return Handle(Inflight([]), None, lambda: tensors)
    started = [
        transport(alike[0].device).allreduce(alike, name_of(op), prescale, postscale, name) for alike in kinds.values()
    ]
    return Handle(joined(started), announcement, lambda: tensors)


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts :func:`allreduce_`; :func:`synchronize` returns ``tensor``."""
    require_global(process_set)
    handle = start([tensor], name, reduction_of(op, average), prescale_factor, postscale_factor)
    return handle.then(lambda _: tensor)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts :func:`allreduce`; :func:`synchronize` returns a new tensor."""
    refuse_sparse(tensor, "allreduce")
    output = tensor.detach().clone()
    return allreduce_async_(output, average, name, op, prescale_factor, postscale_factor, process_set)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> torch.Tensor:
    """Like :func:`allreduce`, in place and without gradients."""
    return synchronize(allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set))


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> torch.Tensor:
    """Combines the tensors of all ranks element by element into a new one.

    It is differentiable: the gradient of the input is the same reduction of the outputs' gradients.

    Args:
        tensor: any shape, the same on all ranks. The type must be one that :mod:`elasticrun.torch.memory` lists.
        average: replaced by ``op``: True is Average, False is Sum.
        name: name of the operation in errors. Ranks compare it.
        compression: compression of the tensor, from :class:`Compression`.
        op: Average (the default), Sum, Adasum, Min, Max or Product.
        prescale_factor: factor of the inputs.
        postscale_factor: factor of the results.
        process_set: only :data:`global_process_set`.

    Raises:
        WorkersFailed: the round is over.
        CollectiveMismatch: ranks made different calls, or calls with different shapes or types.
        NotImplementedError: a sparse tensor or another process set.
    """
    require_global(process_set)
    refuse_sparse(tensor, "allreduce")
    compressed, context = compression.compress(tensor)
    reduced = _Allreduce.apply(compressed, name, reduction_of(op, average), prescale_factor, postscale_factor)
    result: torch.Tensor = compression.decompress(reduced, context)
    return result


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> Handle[list[torch.Tensor]]:
    """Starts :func:`grouped_allreduce_`; :func:`synchronize` returns the list of ``tensors``."""
    require_global(process_set)
    return start(tensors, name, reduction_of(op, average), prescale_factor, postscale_factor)


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> Handle[list[torch.Tensor]]:
    """Starts :func:`grouped_allreduce`; :func:`synchronize` returns a list of new tensors."""
    for tensor in tensors:
        refuse_sparse(tensor, "grouped_allreduce")
    outputs = [tensor.detach().clone() for tensor in tensors]
    return grouped_allreduce_async_(outputs, average, name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> list[torch.Tensor]:
    """Like :func:`grouped_allreduce`, in place and without gradients."""
    return synchronize(
        grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
    )


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> list[torch.Tensor]:
    """:func:`allreduce` of several tensors as one fused operation. Returns a list."""
    require_global(process_set)
    for tensor in tensors:
        refuse_sparse(tensor, "grouped_allreduce")
    compressed, contexts = zip(*[compression.compress(tensor) for tensor in tensors], strict=True)
    reduced = _GroupedAllreduce.apply(name, reduction_of(op, average), prescale_factor, postscale_factor, *compressed)
    return [compression.decompress(tensor, context) for tensor, context in zip(reduced, contexts, strict=True)]


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, name: Any, op: Any, prescale: Any, postscale: Any) -> Any:
        ctx.how = op, prescale, postscale
        return synchronize(allreduce_async(tensor, None, name, op, prescale, postscale))

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        op, prescale, postscale = ctx.how
        reduced = allreduce(gradient, op=op, prescale_factor=prescale, postscale_factor=postscale)
        return reduced, None, None, None, None


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Any, op: Any, prescale: Any, postscale: Any, *tensors: Any) -> Any:
        ctx.how = op, prescale, postscale
        handle = grouped_allreduce_async(tensors, None, name, op, prescale, postscale)
        return tuple(handle.wait())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        op, prescale, postscale = ctx.how
        reduced = grouped_allreduce(list(gradients), op=op, prescale_factor=prescale, postscale_factor=postscale)
        return (None, None, None, None, *reduced)


def sparse_allreduce_async(tensor: torch.Tensor, name: str, op: Any, process_set: Any = None) -> Any:
    """Refused.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "sparse_allreduce_async is not offered: pass tensor.to_dense() to allreduce_async, or "
        "sparse_as_dense=True to DistributedOptimizer"
    )


__all__ = [
    "Average",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "sparse_allreduce_async",
]
