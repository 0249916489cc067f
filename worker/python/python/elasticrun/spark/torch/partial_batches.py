"""Batches at the end of an epoch, which have fewer rows than the others, or none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from ...torch.sync_batch_norm import SyncBatchNorm

__all__ = ["Rows", "batch_norm_of", "is_synchronised", "parts"]

#: Layers whose statistics are over the rows of all workers.
_SYNCHRONISED = (SyncBatchNorm, torch.nn.SyncBatchNorm)


def parts(batch: Any, rows: int, count: int, drop_last: bool) -> Iterator[dict[str, Any] | None]:
    """Splits a batch into ``count`` parts of ``rows`` rows. A part without rows is None.

    Args:
        batch: columns by name, with the attribute ``rows``.
        rows: rows of a full part.
        count: number of parts.
        drop_last: whether a part with fewer rows is None as well.
    """
    columns = dict(batch) if batch.rows else {}
    for start in range(0, rows * count, rows):
        here = start + rows <= batch.rows if drop_last else start < batch.rows
        yield {name: column[start : start + rows] for name, column in columns.items()} if here else None


@dataclass(frozen=True)
class Rows:
    """The rows of a backward pass.

    Attributes:
        own: of this worker.
        total: of all workers.
        everywhere: whether each worker has some.
    """

    own: int
    total: int
    everywhere: bool


@contextlib.contextmanager
def batch_norm_of(model: torch.nn.Module, rows: Rows) -> Iterator[None]:
    """Lets the model take a batch in training mode, also where it is too small for batch normalisation.

    A single value per channel has no variance, so layers use their running mean and variance for it, and do not change them. A row
    has one value per channel in some layers, and several in others, such as those over images. So each layer decides by its input.

    Layers over the rows of all workers (``SyncBatchNorm``) call collectives, so they use their running statistics unless each
    worker has rows. Layers without running statistics are not changed.
    """
    layers = [
        layer
        for layer in model.modules()
        if isinstance(layer, _BatchNorm) and layer.training and layer.running_mean is not None
    ]
    with contextlib.ExitStack() as cleanup:
        for layer in layers:
            synchronised = isinstance(layer, _SYNCHRONISED)
            if synchronised and not rows.everywhere:
                cleanup.callback(setattr, layer, "training", True)
                layer.training = False
            elif (rows.total if synchronised else rows.own) == 1:
                before = layer.register_forward_pre_hook(_before_forward, with_kwargs=True)
                after = layer.register_forward_hook(_after_forward, always_call=True)
                cleanup.callback(before.remove)
                cleanup.callback(after.remove)
        yield


def _before_forward(layer: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Puts a layer into evaluation mode for an input of one value per channel. Its shape is (rows, channels, ...)."""
    [values] = [*args, *kwargs.values()]
    # The layer refuses an input of another shape.
    layer.training = values.dim() < 2 or values.numel() > values.shape[1]


def _after_forward(layer: torch.nn.Module, *_: Any) -> None:
    """Puts a layer back into training mode, also if its forward pass has failed."""
    layer.training = True


def is_synchronised(model: torch.nn.Module) -> bool:
    """Whether a layer of the model calls collectives, so that :class:`Rows` must be those of all workers."""
    return any(isinstance(layer, _SYNCHRONISED) for layer in model.modules())
