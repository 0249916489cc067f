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

    A single row has no variance, so layers use their running mean and variance for it, and do not change them. Layers over the rows
    of all workers (``SyncBatchNorm``) call collectives, so they do the same unless each worker has rows. Layers without running
    statistics are not changed.
    """
    layers = [
        layer
        for layer in model.modules()
        if isinstance(layer, _BatchNorm) and layer.training and layer.running_mean is not None
        if _is_too_small(layer, rows)
    ]
    for layer in layers:
        layer.training = False
    try:
        yield
    finally:
        for layer in layers:
            layer.training = True


def _is_too_small(layer: _BatchNorm, rows: Rows) -> bool:
    if isinstance(layer, _SYNCHRONISED):
        return rows.total == 1 or not rows.everywhere
    return rows.own == 1


def is_synchronised(model: torch.nn.Module) -> bool:
    """Whether a layer of the model calls collectives, so that :class:`Rows` must be those of all workers."""
    return any(isinstance(layer, _SYNCHRONISED) for layer in model.modules())
