"""A global batch that is the same at any number of workers, by gradient accumulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from elasticrun import _coordinates

__all__ = ["GlobalBatch", "MicroBatch"]


@dataclass(frozen=True)
class MicroBatch:
    """Rows of a global batch that a worker computes at a time.

    Attributes:
        rows: indices of the rows in the global batch. May be empty: compute the step all the same, since it has collectives.
        weight: factor of the mean loss of these rows. The gradients of all workers, which FSDP and DistributedDataParallel
            average, then add up to the gradient of the mean loss of the global batch.
        is_last: whether this is the last micro-batch of the step on this worker.
    """

    rows: range
    weight: float
    is_last: bool

    def accumulate(self, model: torch.nn.Module) -> AbstractContextManager[None]:
        """A context for forward and backward: workers exchange gradients in the last micro-batch only."""
        if hasattr(model, "set_requires_gradient_sync"):
            return _fsdp(model, self.is_last)
        no_sync: Callable[[], AbstractContextManager[None]] | None = getattr(model, "no_sync", None)
        return nullcontext() if self.is_last or no_sync is None else no_sync()


class GlobalBatch:
    """Divides a batch of a constant number of rows among any number of workers.

    ::

        batch = GlobalBatch(256, micro=16)
        for micro in batch.micro_batches():
            with micro.accumulate(model):
                loss = criterion(model(inputs[micro.rows]), targets[micro.rows])
                (loss * micro.weight).backward()
        optimizer.step()

    So the learning rate and its schedule need no change when workers come or go, and losses depend on the number of
    workers by rounding only. All workers of a step have the same number of micro-batches.

    Args:
        rows: rows of a step, in all workers together.
        micro: most rows that a worker computes at a time. Default: all of its share.

    Raises:
        ValueError: a number is less than 1.
    """

    def __init__(self, rows: int, micro: int | None = None) -> None:
        if rows < 1 or (micro is not None and micro < 1):
            raise ValueError(f"GlobalBatch({rows}, micro={micro}): must be at least 1")
        self.rows = rows
        self.micro = micro or rows

    def micro_batches(self) -> Iterator[MicroBatch]:
        """The micro-batches of this worker in the current round."""
        places = _coordinates.current()
        yield from self.of(places.index, places.count)

    def of(self, share: int, shares: int) -> Iterator[MicroBatch]:
        """The micro-batches of share ``share`` of ``shares``. The first shares have one row more if it does not divide."""
        least, more = divmod(self.rows, shares)
        start = share * least + min(share, more)
        stop = start + least + (share < more)
        most = least + (more > 0)
        count = -(-most // self.micro)
        # Parts of nearly equal length, so that no worker waits for one with a longer part.
        for part in range(count):
            bounds = [start + (stop - start) * edge // count for edge in (part, part + 1)]
            rows = range(*bounds)
            yield MicroBatch(rows, len(rows) * shares / self.rows, part == count - 1)


@contextmanager
def _fsdp(model: Any, is_last: bool) -> Iterator[None]:
    model.set_requires_gradient_sync(is_last)
    model.set_is_last_backward(is_last)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)
        model.set_is_last_backward(True)
