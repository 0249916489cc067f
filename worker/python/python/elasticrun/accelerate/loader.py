"""The loader of the training data, which commits each optimizer step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from accelerate.data_loader import DataLoaderShard
from accelerate.utils import send_to_device

from elasticrun._loops import loaders
from elasticrun._loops.batches import ElasticBatches
from elasticrun._loops.rows import RowBatches


def _nothing() -> None:
    """In place of a hook."""


@dataclass(frozen=True)
class Hooks:
    """What a loader calls.

    Attributes:
        before_epoch: called before the first batch.
        before_step: called before a batch is given.
        after_step: called when the caller is done with it, and asks for more.
    """

    before_epoch: Callable[[], None] = _nothing
    before_step: Callable[[], None] = _nothing
    after_step: Callable[[], None] = _nothing


class ElasticLoader(DataLoaderShard):
    """A loader over elastic batches.

    Args:
        loader: the loader of the user.
        batches: what it reads.
        device: where batches go. None: where they are.
        non_blocking: whether copies to it do not wait.
        hooks: what it calls.
    """

    def __init__(self, loader: Any, batches: ElasticBatches, device: Any, non_blocking: bool, hooks: Hooks) -> None:
        super().__init__(
            loader.dataset,
            device=device,
            batch_sampler=batches,
            _drop_last=batches.drop_last,
            _non_blocking=non_blocking,
            **loaders.arguments(loader),
        )
        self._hooks = hooks

    def __iter__(self) -> Iterator[Any]:
        self._hooks.before_epoch()
        # Accelerate tells a data set with a set_epoch() how often this was called.
        self.iteration = self.batch_sampler.epoch
        for batch in super().__iter__():
            self._hooks.before_step()
            yield batch
            self._hooks.after_step()


class ElasticRowLoader(DataLoaderShard):
    """A loader over the batches of a data set of ``elasticrun.data``. It does not read ahead.

    Args:
        loader: the loader of the user.
        batches: the position in its data set.
        device, non_blocking, hooks: as for :class:`ElasticLoader`.
    """

    def __init__(self, loader: Any, batches: RowBatches, device: Any, non_blocking: bool, hooks: Hooks) -> None:
        super().__init__(
            loader.dataset,
            device=device,
            batch_size=None,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            _non_blocking=non_blocking,
        )
        # Accelerate takes it as it is.
        self._is_accelerate_prepared = True
        self._batches = batches
        self._hooks = hooks

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        self._hooks.before_epoch()
        self.begin()
        for batch in iter(self.base_dataloader):
            self.end_of_dataloader = self._batches.remaining == 0
            self._hooks.before_step()
            yield batch if self.device is None else send_to_device(batch, self.device, self._non_blocking)
            self._hooks.after_step()
        self.end()
