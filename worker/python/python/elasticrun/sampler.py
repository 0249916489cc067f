"""Assigns samples to workers: each sample once in an epoch, through all changes of the workers.

An epoch is a permutation of all samples, which depends on the seed and the epoch. All workers process it in order together, so
the state is the number of processed samples. When the workers change, the remaining samples are divided among the new ones.
The permutation is computed index by index and takes no memory.
"""

from __future__ import annotations

import array
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence, Set, Sized
from dataclasses import dataclass
from typing import Any

from . import _coordinates
from ._native import Sampler

__all__ = ["Batch", "ElasticSampler", "ProcessedIndices"]

_SEEDS = 1 << 64
#: Maximum number of samples of one worker in one step: the native module counts in 32 bits.
_MAX_BATCH = (1 << 32) - 1
#: Number of indices that iteration computes at once.
_CHUNK = 1024
#: Rank, size and padding of a single worker, which gets all samples.
_ALONE = (0, 1, False)


@dataclass(frozen=True)
class Batch(Sequence[int]):
    """This worker's share of the samples of one step; a sequence of indices.

    Attributes:
        indices: samples of this worker, 64-bit integers. May be empty in the last steps of an epoch.
        global_size: samples of all workers in this step, at least 1. Divide a sum over all workers by it.
    """

    indices: array.array[int]
    global_size: int
    _start: int

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        return self.indices[index]


class ElasticSampler:
    """The position of all workers in a data set: part of the state of an elastic job.

    There are two ways to use it. With a loader that makes batches of indices, such as that of torch::

        sampler = ElasticSampler(dataset)
        for batch_idx, batch in enumerate(DataLoader(dataset, batch_size, sampler=sampler)):
            ...
            sampler.record_batch(batch_idx, batch_size)
            state.commit()
        sampler.set_epoch(sampler.epoch + 1)

    Without a loader, which visits each sample exactly once::

        for batch in sampler.batches(batch_size):
            ...
            sampler.record(batch)
            state.commit()
        sampler.set_epoch(sampler.epoch + 1)

    When the workers change, the loop ends, and the next one continues after the last recorded batch. All workers make the
    same calls. A :class:`~elasticrun.elastic.ObjectState` saves, restores and resets the samplers among its attributes.

    Args:
        dataset: an object with a length, or the number of samples.
        shuffle: whether each epoch has a new random order. Otherwise samples come in the order of the data set.
        seed: seed of the random orders, the same in all workers.
        padding: what iteration does if the remaining samples do not divide evenly. True, as in Horovod: at most
            ``size() - 1`` samples are repeated, so that all workers get the same number. False: each sample comes once,
            some workers get one sample less, and the last batch may be missing on some workers. :meth:`batches` needs no
            padding.

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
        """Goes to the start of ``epoch``, which has a new order. Call it when an epoch is done."""
        self._go_to(epoch, 0)

    def reset(self) -> None:
        """Divides the remaining samples of the epoch among the current workers. Takes constant time and memory."""
        places = _coordinates.current()
        self.rank, self.num_replicas = places.index, places.count
        # Later records do not change what iteration yields until the next reset.
        self._native.share_out()

    @property
    def position(self) -> int:
        """Number of samples of this epoch that all workers together have processed."""
        return self._native.position

    @property
    def processed_num(self) -> int:
        """Horovod's name of :attr:`position`."""
        return self.position

    @property
    def num_samples(self) -> int:
        """Number of samples that iteration yields on this worker."""
        return self._native.turns(*self._worker())

    @property
    def total_size(self) -> int:
        """Number of samples that iteration yields on all workers."""
        return self._native.turns_of_all(self.num_replicas, self.padding)

    @property
    def remaining_indices(self) -> list[int]:
        """Samples that remained at the last reset, in order. Computed at each access, in time and memory of their number."""
        return list(_walk(self._native, _ALONE))

    @property
    def indices(self) -> list[int]:
        """Samples that iteration yields on this worker. Computed at each access."""
        return list(self)

    @property
    def processed_indices(self) -> ProcessedIndices:
        """The processed samples of this epoch, as a set that takes no memory."""
        return ProcessedIndices(self._native.copy().sample_at, self.position)

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        """Samples of this worker since the last reset: index ``rank + i * num_replicas`` of those that remained then."""
        # A copy: later records and resets do not change a running iteration.
        return _walk(self._native.copy(), self._worker())

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Samples of batch ``batch_idx`` of an iteration in batches of ``batch_size``."""
        return self._local_indices(batch_idx * batch_size, (batch_idx + 1) * batch_size)

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that all workers have processed a batch of ``batch_size`` samples each.

        Call it once for each batch, after the step in which the batch was used. ``batch_idx`` has no effect, as in Horovod.
        """
        del batch_idx
        self._native.record_next(batch_size * self.num_replicas)

    def record_indices(self, indices: Iterable[int]) -> None:
        """Records that the next samples of this worker, in the order of iteration, are processed.

        All workers must record the same number at the same time, so this needs padding.

        Raises:
            ValueError: they are not the next samples, or padding is off.
        """
        if not self.padding:
            raise ValueError("record_indices() needs padding=True: use record_batch() without it")
        given = [int(index) for index in indices]
        done = self._native.turns_done(self.num_replicas)
        if given != self._local_indices(done, done + len(given)):
            raise ValueError(
                f"record_indices() takes the next samples of this worker in the order of iteration, not {given[:5]}"
            )
        self._native.record_turns(done + len(given), self.num_replicas)

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Batches of this worker from the current position to the end of the epoch, at most ``batch_size`` samples each.

        All workers get the same number of batches. The last samples are divided evenly, so a worker may get an empty batch;
        it still has to join the collectives of that step. Call :meth:`record` for each batch before taking the next one.

        Raises:
            ValueError: ``batch_size`` is less than 1, or a batch was not recorded.
        """
        if batch_size < 1:
            raise ValueError(f"batches({batch_size}): must be at least 1")
        limit = min(batch_size, _MAX_BATCH)
        while given := self._native.next_batch(self.rank, self.num_replicas, limit):
            start = self.position
            indices, global_size = given
            yield Batch(_integers(indices), global_size, start)
            if self.position == start:
                raise ValueError("record(batch) must be called before the next batch is taken")

    def record(self, batch: Batch) -> None:
        """Records that all workers have done the step with ``batch``, and moves the position behind it.

        Raises:
            ValueError: it is not the next batch.
        """
        if batch._start != self.position:
            raise ValueError(
                f"a batch is recorded once, and in order: this one begins at {batch._start}, not {self.position}"
            )
        self._native.record_next(batch.global_size)

    def state_dict(self) -> dict[str, int | bool]:
        """Epoch, position, and the properties of the order that they refer to. ``processed_num`` is the position too."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "processed_num": self.position,
            "len": self._len,
            "seed": self.seed,
            "shuffle": self.shuffle,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes to the position of another sampler of the same data.

        The state of a sampler of Horovod has the keys ``epoch`` and ``processed_num`` only. Without ``shuffle`` its position
        is exact. With ``shuffle`` the two have different random orders, so a warning says that this one epoch may repeat
        some samples and leave others out.

        Raises:
            ValueError: the other sampler had other data or another order, in which the position has another meaning.
        """
        if state_dict.keys() == {"epoch", "processed_num"}:
            self._load_horovods(int(state_dict["epoch"]), int(state_dict["processed_num"]))
            return
        if "position" not in state_dict:
            raise ValueError(
                f"a sampler's state has a position, this one has {sorted(state_dict)}: a set of processed indices"
                " belongs to an order that is not ours, so begin the epoch anew"
            )
        current = self.state_dict()
        for key in ("len", "seed", "shuffle"):
            if state_dict[key] != current[key]:
                raise ValueError(f"the state is of a sampler with {key} {state_dict[key]}, this one has {current[key]}")
        self._go_to(int(state_dict["epoch"]), int(state_dict["position"]))

    def _load_horovods(self, epoch: int, processed: int) -> None:
        if self.shuffle and processed > 0:
            warnings.warn(
                f"the state is of a sampler of Horovod, whose random order is another one: this sampler may repeat samples"
                f" of epoch {epoch} and leave others out; later epochs are whole",
                stacklevel=3,
            )
        # Horovod counts whole batches, so its number may exceed that of the samples.
        self._go_to(epoch, min(processed, self._len))

    def _go_to(self, epoch: int, position: int) -> None:
        # Reads the attributes again, since a script may have changed them.
        native = Sampler(self._len, self.seed % _SEEDS, self.shuffle)
        native.go_to(epoch % _SEEDS, position)
        self.epoch, self._native = epoch, native
        self.reset()

    def _worker(self) -> tuple[int, int, bool]:
        return self.rank, self.num_replicas, self.padding

    def _local_indices(self, first: int, stop: int) -> list[int]:
        """Samples that iteration yields on this worker in its turns from ``first`` to ``stop``."""
        return list(_integers(self._native.indices(self._worker(), first, stop)))


def _walk(sampler: Sampler, worker: tuple[int, int, bool]) -> Iterator[int]:
    for first in range(0, sampler.turns(*worker), _CHUNK):
        yield from _integers(sampler.indices(worker, first, first + _CHUNK))


def _integers(native: bytes) -> array.array[int]:
    return array.array("q", native)


class ProcessedIndices(Set[int]):
    """The first samples of an order, computed on demand."""

    def __init__(self, sample_at: Callable[[int], int], count: int) -> None:
        self._sample_at = sample_at
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return (self._sample_at(index) for index in range(self._count))

    def __contains__(self, index: object) -> bool:
        return any(index == processed for processed in self)

    @classmethod
    def _from_iterable(cls, it: Iterable[int]) -> frozenset[int]:  # type: ignore[override]
        return frozenset(it)

    def __repr__(self) -> str:
        return f"<{self._count} processed indices>"
