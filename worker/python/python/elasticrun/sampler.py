"""Which samples a worker trains on, each exactly once in an epoch through all changes of the world.

An epoch is a permutation of all samples, drawn from seed and epoch. All workers walk along it together, so all
that is kept is how many samples they have processed; after a change of the world the rest is shared out anew.
The order takes no memory: it is computed index by index.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Iterable, Iterator, Sequence, Set, Sized
from dataclasses import dataclass
from typing import Any

from . import lifecycle
from ._native import Sampler

__all__ = ["Batch", "ElasticSampler", "ProcessedIndices"]

_SEEDS = 1 << 64
#: Samples of one worker in one step at most, as the native side counts them.
_MOST = (1 << 32) - 1
#: Indices that are computed at once, where they are asked for one by one.
_CHUNK = 1024


@dataclass(frozen=True)
class Batch(Sequence[int]):
    """This worker's share of the samples of one step; a sequence of indices.

    Attributes:
        indices: samples of this worker, 64-bit integers; may be none in the last steps of an epoch.
        global_size: samples of all workers in this step, at least 1: what a sum over all is divided by.
    """

    indices: array.array[int]
    global_size: int
    _start: int

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, place: Any) -> Any:
        return self.indices[place]


class ElasticSampler:
    """The place of all workers in a data set: part of the state of an elastic job.

    There are two ways to use it. With a loader that makes batches of indices (that of torch, say)::

        sampler = ElasticSampler(dataset)
        for batch_idx, batch in enumerate(DataLoader(dataset, batch_size, sampler=sampler)):
            ...
            sampler.record_batch(batch_idx, batch_size)
            state.commit()
        sampler.set_epoch(sampler.epoch + 1)

    By itself, to the last sample and without any twice::

        for batch in sampler.batches(batch_size):
            ...
            sampler.record(batch)
            state.commit()
        sampler.set_epoch(sampler.epoch + 1)

    A loop is left when the world changes; the next one goes on after the last recorded batch. All workers make
    the same calls. A :class:`~elasticrun.elastic.ObjectState` saves, restores and resets samplers that are
    among its attributes.

    Args:
        dataset: what has a length, or the number of samples.
        shuffle: in a new random order in each epoch; else in the order of the data set.
        seed: of the random orders. The same in all workers.
        padding: what iteration does where the samples left do not divide among the workers. True, as Horovod
            does: the last samples of the epoch are given out again, at most ``size() - 1`` of them, so that all
            workers have as many. False: some workers have one sample less, each sample comes once, and the last
            batch may be missing on some workers. :meth:`batches` needs no padding.

    Raises:
        NotInitialized: before ``init()``.
    """

    def __init__(self, dataset: Sized | int, shuffle: bool = True, seed: int = 0, *, padding: bool = True) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.padding = padding
        self.rank = 0
        self.num_replicas = 1
        self._len = dataset if isinstance(dataset, int) else len(dataset)
        self._go_to(0, 0)

    def set_epoch(self, epoch: int) -> None:
        """Goes to the start of ``epoch``, which has an order of its own. Call it when an epoch is done."""
        self._go_to(epoch, 0)

    def reset(self) -> None:
        """Shares out what is left of the epoch among the workers of now. Constant time and memory."""
        self.rank = lifecycle.rank()
        self.num_replicas = lifecycle.size()
        # What iteration walks over from here on, whatever is recorded meanwhile.
        self._native.share_out()

    @property
    def position(self) -> int:
        """Samples of this epoch that all workers together have processed."""
        return self._native.position

    @property
    def num_samples(self) -> int:
        """Samples that iteration gives this worker."""
        return self._native.turns(*self._worker())

    @property
    def total_size(self) -> int:
        """Samples that iteration gives all workers."""
        return self._native.turns_of_all(self.num_replicas, self.padding)

    @property
    def processed_indices(self) -> ProcessedIndices:
        """Samples of this epoch that are processed, as a set that takes no memory."""
        return ProcessedIndices(self._native.copy().at, self.position)

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        """Samples of this worker from the last reset on; place ``rank + i * num_replicas`` of what was left then."""
        # Of the epoch and the workers of now, whatever is recorded meanwhile.
        return _walk(self._native.copy(), self._worker())

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Samples of batch ``batch_idx`` of an iteration in batches of ``batch_size``."""
        return self._own(batch_idx * batch_size, (batch_idx + 1) * batch_size)

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Batch ``batch_idx`` of the iteration, and so all before it, is processed by all workers.

        Call it after the step in which the batch was used. ``batch_idx`` counts from the last reset.
        """
        self._native.record_turns((batch_idx + 1) * batch_size, self.num_replicas)

    def record_indices(self, indices: Iterable[int]) -> None:
        """These samples, the next ones of this worker in the order of the iteration, are processed.

        All workers record as many at the same time, so it needs padding.

        Raises:
            ValueError: they are not the next ones, or there is no padding, so what all workers have processed
                would not be known.
        """
        if not self.padding:
            raise ValueError("record_indices() needs padding=True: use record_batch() without it")
        given = [int(index) for index in indices]
        done = self._native.turns_done(self.num_replicas)
        if given != self._own(done, done + len(given)):
            raise ValueError(
                f"record_indices() takes the next samples of this worker in the order of iteration, not {given[:5]}"
            )
        self._native.record_turns(done + len(given), self.num_replicas)

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Batches of this worker from here to the end of the epoch, at most ``batch_size`` samples each.

        All workers have as many batches. The last samples are shared out evenly, and a worker may get none:
        an empty batch, with which it joins the collectives of this step all the same. :meth:`record` each
        batch before the next one is taken.

        Raises:
            ValueError: ``batch_size`` is less than 1, or a batch was not recorded.
        """
        if batch_size < 1:
            raise ValueError(f"batches({batch_size}): must be at least 1")
        most = min(batch_size, _MOST)
        while given := self._native.next_batch(self.rank, self.num_replicas, most):
            start = self.position
            indices, global_size = given
            yield Batch(_integers(indices), global_size, start)
            if self.position == start:
                raise ValueError("record(batch) must be called before the next batch is taken")

    def record(self, batch: Batch) -> None:
        """The step with ``batch`` is done in all workers: goes past it.

        Raises:
            ValueError: it is not the next batch.
        """
        if batch._start != self.position:
            raise ValueError(
                f"a batch is recorded once, and in order: this one begins at {batch._start}, not {self.position}"
            )
        self._native.record_next(batch.global_size)

    def state_dict(self) -> dict[str, int | bool]:
        """Epoch and position, and what they are positions in."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "len": self._len,
            "seed": self.seed,
            "shuffle": self.shuffle,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes to where another sampler of the same data was.

        Raises:
            ValueError: it was of other data or in another order, where some samples would be repeated and
                others left out.
        """
        if "position" not in state_dict:
            raise ValueError(
                f"a sampler's state has a position, this one has {sorted(state_dict)}: a set of processed indices"
                " belongs to an order that is not ours, so begin the epoch anew"
            )
        own = self.state_dict()
        for key in ("len", "seed", "shuffle"):
            if state_dict[key] != own[key]:
                raise ValueError(f"the state is of a sampler with {key} {state_dict[key]}, this one has {own[key]}")
        self._go_to(int(state_dict["epoch"]), int(state_dict["position"]))

    def _go_to(self, epoch: int, position: int) -> None:
        # Of the attributes as they are now: a script may have set them since.
        native = Sampler(self._len, self.seed % _SEEDS, self.shuffle)
        native.go_to(epoch % _SEEDS, position)
        self.epoch, self._native = epoch, native
        self.reset()

    def _worker(self) -> tuple[int, int, bool]:
        return self.rank, self.num_replicas, self.padding

    def _own(self, first: int, stop: int) -> list[int]:
        """What iteration gives this worker in its turns from ``first`` to ``stop``."""
        return list(_integers(self._native.indices(self._worker(), first, stop)))


def _walk(sampler: Sampler, worker: tuple[int, int, bool]) -> Iterator[int]:
    for first in range(0, sampler.turns(*worker), _CHUNK):
        yield from _integers(sampler.indices(worker, first, first + _CHUNK))


def _integers(native: bytes) -> array.array[int]:
    return array.array("q", native)


class ProcessedIndices(Set[int]):
    """The samples at the first places of an order, computed as they are asked for."""

    def __init__(self, at: Callable[[int], int], count: int) -> None:
        self._at = at
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return (self._at(place) for place in range(self._count))

    def __contains__(self, index: object) -> bool:
        return any(index == processed for processed in self)

    @classmethod
    def _from_iterable(cls, it: Iterable[int]) -> frozenset[int]:  # type: ignore[override]
        return frozenset(it)

    def __repr__(self) -> str:
        return f"<{self._count} processed indices>"
