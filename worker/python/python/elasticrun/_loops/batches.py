"""Batches of a data loader, which continue after a change of the workers with the samples that remain of the epoch."""

from __future__ import annotations

import array
from collections.abc import Iterator
from typing import Any

from torch.utils.data import BatchSampler, Sampler

from elasticrun import _native
from elasticrun.sampler import ElasticSampler

from . import seeds


class ElasticBatches(BatchSampler):
    """This worker's batches, from the position of a sampler to the end of the epoch.

    Iteration does not move the sampler, because loaders read ahead: :meth:`advance` does, once a step is done. All workers
    get the same number of batches. The last samples of an epoch are divided evenly. If they are fewer than workers,
    workers without one repeat one of them, so that all can take the step.

    Args:
        sampler: the position; a part of the committed state.
        batch_size: samples of one worker in a step.
        drop_last: whether an epoch ends before a step that has fewer than ``batch_size`` samples for each worker.
    """

    def __init__(self, sampler: ElasticSampler, batch_size: int, drop_last: bool) -> None:
        self._position = sampler
        #: What frameworks take for the sampler of the batches, whose length they ask for.
        self.sampler: Sampler[int] = _Positions(sampler)
        self.batch_size = batch_size
        self.drop_last = drop_last
        #: Steps of this epoch that are done, with any number of workers.
        self.done = 0

    @property
    def num_processes(self) -> int:
        """Workers of the round, by the name that Accelerate looks for."""
        return self._position.num_replicas

    @property
    def epoch(self) -> int:
        """The epoch of the position."""
        return self._position.epoch

    @property
    def remaining(self) -> int:
        """Steps from the position to the end of the epoch, with the current workers."""
        return self._steps(self._position._len - self._position.position)

    @property
    def steps_of_epoch(self) -> int:
        """Steps of a whole epoch with the current workers."""
        return self._steps(self._position._len)

    def __len__(self) -> int:
        """Steps of this epoch: those that are done, and those that remain."""
        return self.done + self.remaining

    def __iter__(self) -> Iterator[list[int]]:
        # A copy, taken now: the loop moves the sampler while this runs ahead.
        ahead = self._position._native.copy()
        rank = self._position.rank
        epoch, seed = self._position.epoch, self._position.seed
        for _ in range(self.remaining):
            position = ahead.position
            share, samples = self._next(ahead, rank)
            indices = share.tolist() or [ahead.sample_at(position)]
            ahead.record_next(samples)
            # A data set that draws random numbers, such as augmentations, draws the same ones if the step is repeated.
            seeds.plant(seed, "data", epoch, position, rank)
            yield indices

    def advance(self, steps: int = 1) -> None:
        """Records that all workers have done the next ``steps`` steps."""
        for _ in range(steps):
            _, samples = self._next(self._position._native, 0)
            self._position._native.record_next(samples)
        self.done += steps

    def go_to(self, epoch: int) -> None:
        """Goes to the start of an epoch."""
        self._position.set_epoch(epoch)
        self.done = 0

    def enter(self) -> None:
        """At the start of a round: nothing, since each worker knows all positions."""

    def agree(self) -> None:
        """Before a commit: nothing, since all workers take equal steps."""

    def committed(self) -> None:
        """After a commit: nothing."""

    def state_dict(self) -> dict[str, Any]:
        """The position, and the number of steps that have led to it."""
        return {"sampler": self._position.state_dict(), "done": self.done}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes to the position of the batches of another process of the job."""
        self._position.load_state_dict(state_dict["sampler"])
        self.done = state_dict["done"]

    def _next(self, position: _native.Sampler, rank: int) -> tuple[array.array[int], int]:
        """The samples of a rank in the next step, and the number of those of all ranks."""
        share, samples = position.next_batch(rank, self.num_processes, self.batch_size) or (b"", 0)
        return array.array("q", share), samples

    def _steps(self, samples: int) -> int:
        whole, rest = divmod(samples, self.batch_size * self.num_processes)
        return whole if self.drop_last or rest == 0 else whole + 1


class _Positions(Sampler[int]):
    """Stands for the sampler of the batches, where frameworks ask for its length."""

    def __init__(self, sampler: ElasticSampler) -> None:
        self._sampler = sampler

    def __len__(self) -> int:
        return self._sampler._len

    def __iter__(self) -> Iterator[int]:
        return iter(self._sampler)
