"""Frees the memory of a model of an earlier round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from elasticrun import _native

from ..zero import local_optimizer
from . import fsdp


def release(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    pool: _native.PagePool | None = None,
    *,
    keeps_all: bool = False,
) -> int:
    """Frees the memory of parameters, gradients, optimizer state and buffers of FSDP at once. Returns the bytes.

    Other objects may still refer to the tensors, which have no data from then on: neither model nor optimizer may be used
    again. FSDP's objects refer to each other, so only a garbage collection frees them, which takes longer than the rest
    of a recovery.

    Buffers of modules are left alone, because models share them (tables of positions). So is memory that cannot be resized,
    such as that of NumPy arrays and mapped files.

    Args:
        model: the model.
        optimizer: its optimizer.
        pool: takes the pages of the optimizer's state, for that of the next model, which :func:`make_optimizer_state` makes after
            ``build()`` has allocated a model.
        keeps_all: the pool takes all pages: ``build()`` allocates none.
    """
    if any(parameter.device.type == "cuda" for parameter in model.parameters()):
        # Streams of the round before may still use the memory: its groups are aborted, so their kernels end.
        torch.cuda.synchronize()
    freed = 0
    with torch.no_grad():
        if optimizer is not None:
            for tensor in _within([*local_optimizer(optimizer).state.values()]):
                freed += _free(tensor, pool)
        for tensor in _tensors(model, optimizer):
            freed += _free(tensor, pool if keeps_all else None)
    if optimizer is not None:
        local_optimizer(optimizer).state.clear()
    return freed


def _tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> Iterator[torch.Tensor]:
    """Tensors to free. Takes the gradients from the parameters."""
    roots: list[Any] = list(model.parameters())
    if optimizer is not None:
        roots += [group["params"] for group in optimizer.param_groups]
    roots += map(vars, fsdp.owners(model))
    for tensor in _within(roots):
        yield tensor
        if tensor.is_leaf and tensor.grad is not None:
            yield tensor.grad
            tensor.grad = None


def _within(values: list[Any]) -> Iterator[torch.Tensor]:
    """Tensors in nested containers, of which it empties the outermost one."""
    while values:
        value = values.pop()
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict):
            values += value.values()
        elif isinstance(value, (list, tuple)) and type(value) is not torch.Size:
            values += value


def _free(tensor: torch.Tensor, pool: _native.PagePool | None) -> int:
    """Frees the memory of ``tensor``, or of the tensors that it wraps (DTensor: the local shard). Returns the bytes."""
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        parts = [getattr(tensor, name) for name in names]
        # DTensor also names its mesh.
        return sum(_free(part, pool) for part in parts if isinstance(part, torch.Tensor))
    if tensor.device.type == "meta":
        return 0
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    if size == 0 or not storage.resizable():
        return 0
    if pool is not None and tensor.device.type == "cpu" and not (storage.is_shared() or tensor.is_pinned()):
        pool.take((storage.data_ptr(), size))
    storage.resize_(0)
    return size
