"""allgather: concatenates the tensors of all ranks along the first dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from elasticrun import errors
from elasticrun.process_sets import global_process_set, require_global

from .handle import Handle
from .inflight import Inflight, joined
from .memory import refuse_sparse
from .mismatch_check import JOIN, Announcement, Call, mismatch
from .rounds import host_transport, rank, transport


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: Any = global_process_set
) -> Handle[list[torch.Tensor]]:
    """Starts :func:`grouped_allgather`; :func:`synchronize` returns a list of new tensors."""
    require_global(process_set)
    started = [_start(tensor, name) for tensor in tensors]
    return _together(started)


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: Any = global_process_set
) -> Handle[torch.Tensor]:
    """Starts :func:`allgather`; :func:`synchronize` returns a new tensor.

    The call waits until all ranks have made it, because the size of the result depends on all of them.
    """
    require_global(process_set)
    pending, output, _ = _start(tensor, name)
    return Handle(pending, None, lambda: output)


def allgather(tensor: torch.Tensor, name: str | None = None, process_set: Any = global_process_set) -> torch.Tensor:
    """Concatenates the tensors of all ranks along the first dimension, in order of rank.

    It is differentiable: the gradient of the input is this rank's part of the average of the outputs' gradients.

    Args:
        tensor: the type and all dimensions except the first must be the same on all ranks. A scalar counts as one row.
        name: name of the operation in errors. Ranks compare it.
        process_set: only :data:`global_process_set`.

    Raises:
        WorkersFailed: the round is over.
        CollectiveMismatch: ranks made different calls, or calls with shapes or types that do not fit.
    """
    require_global(process_set)
    result: torch.Tensor = _Allgather.apply(tensor, name)
    return result


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: Any = global_process_set
) -> list[torch.Tensor]:
    """:func:`allgather` of several tensors. Returns a list."""
    require_global(process_set)
    return list(_GroupedAllgather.apply(name, *tensors))


def agree(call: Call, rank: int, calls: Sequence[Call]) -> None:
    """Raises CollectiveMismatch unless all calls match. They may differ in the first dimension."""
    for other_rank, other in enumerate(calls):
        alike = other.kind == call.kind and other.name == call.name
        for (dtype, shape), (other_dtype, other_shape) in zip(call.tensors, other.tensors, strict=False):
            alike = alike and dtype == other_dtype and shape[1:] == other_shape[1:]
            alike = alike and len(shape) == len(other_shape)
        if not alike or other.kind == JOIN:
            raise errors.CollectiveMismatch(mismatch(other_rank, other, rank, call))


def gather_rows(tensor: torch.Tensor, rows: Sequence[int], name: str | None = None) -> tuple[Inflight, torch.Tensor]:
    """Gathers ``rows[rank]`` rows of each rank's ``tensor``. All ranks know the counts."""
    shape = tensor.shape[1:]
    carrier = transport(tensor.device)
    if len(set(rows)) == 1:
        output = tensor.new_empty((sum(rows), *shape))
        return carrier.allgather(tensor, output, name), output
    # Unequal counts: all ranks send the maximum, and the padding is removed at the end.
    max_rows = max(rows)
    padded = tensor.new_zeros((max_rows, *shape))
    padded[: tensor.shape[0]].copy_(tensor)
    padded_rows = tensor.new_empty((len(rows) * max_rows, *shape))
    output = tensor.new_empty((sum(rows), *shape))
    gathered = carrier.allgather(padded, padded_rows, name)

    def finish() -> None:
        gathered.wait()
        start = 0
        for source, count in enumerate(rows):
            output[start : start + count].copy_(padded_rows[source * max_rows : source * max_rows + count])
            start += count

    return Inflight(gathered.parts, finish, padded), output


def _start(tensor: torch.Tensor, name: str | None) -> tuple[Inflight, torch.Tensor, list[int]]:
    """The operation, its future result, and the number of rows from each rank."""
    refuse_sparse(tensor, "allgather")
    tensor = tensor.detach()
    if tensor.dim() == 0:
        tensor = tensor.reshape(1)
    host = host_transport()
    call = Call.from_tensors("allgather", name, [tensor])
    calls = Announcement(host, call).calls()
    agree(call, host.rank, calls)
    rows = [other.tensors[0][1][0] for other in calls]
    return *gather_rows(tensor, rows, name), rows


def _together(
    started: Sequence[tuple[Inflight, torch.Tensor, list[int]]],
) -> Handle[list[torch.Tensor]]:
    pending = joined([pending for pending, _, _ in started])
    return Handle(pending, None, lambda: [output for _, output, _ in started])


def _own_part(gradient: torch.Tensor, rows: Sequence[int], shape: torch.Size) -> torch.Tensor:
    """This rank's rows of the average gradient of all ranks."""
    from .allreduce import allreduce

    average = allreduce(gradient)
    start = sum(rows[: rank()])
    return average[start : start + rows[rank()]].reshape(shape)


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, name: Any) -> Any:
        pending, output, ctx.rows = _start(tensor, name)
        ctx.shape = tensor.shape
        pending.wait()
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        return _own_part(gradient, ctx.rows, ctx.shape), None


class _GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Any, *tensors: Any) -> Any:
        started = [_start(tensor, name) for tensor in tensors]
        ctx.inputs = [(rows, tensor.shape) for (_, _, rows), tensor in zip(started, tensors, strict=True)]
        return tuple(_together(started).wait())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        parts = [
            _own_part(gradient, rows, shape) for gradient, (rows, shape) in zip(gradients, ctx.inputs, strict=True)
        ]
        return (None, *parts)
