"""Several data sets, read in proportion to weights."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import checkpoint
from .batch import Batch
from .dataset import ParquetDataset

if TYPE_CHECKING:
    from types import TracebackType

    from .readers import Reader

__all__ = ["Mixture", "WeightedSamplingReader"]


class Mixture:
    """The batches of several data sets in proportion to weights. Each row of each data set is read once in an epoch.

        data = Mixture([web, books], weights=[3, 1])
        state = ObjectState(model=..., data=data)

    Each batch is from one data set, whose index is :attr:`Batch.source`. Since the start of the epoch or round, the number of
    batches of each unfinished data set is within one of its share. A finished data set is left out. The choice is deterministic,
    so all workers take a step from the same data set.

    Args:
        datasets: at least one. The mixture is part of the state, and the data sets are not.
        weights: a positive number for each. They apply to batches, and not to rows if batch sizes differ. By default, the number
            of steps of each data set in an epoch, so that all end together.

    Raises:
        ValueError: not one weight for each data set, or one that is not positive.
    """

    def __init__(self, datasets: Sequence[ParquetDataset], weights: Sequence[float] | None = None) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("Mixture: at least one data set is needed")
        self._weights = None if weights is None else _weights("weights", weights, len(self.datasets))
        self._taken = [0] * len(self.datasets)
        #: Whether all batches of this epoch were returned.
        self._has_ended = False

    @property
    def epoch(self) -> int:
        """The epoch, from 0; the same for all data sets."""
        return self.datasets[0].epoch

    @property
    def rows(self) -> int:
        """Rows of an epoch, of all data sets and workers."""
        return sum(data.rows for data in self.datasets)

    def __len__(self) -> int:
        """Batches of the next iteration; see :class:`ParquetDataset`."""
        if self._has_ended:
            return sum(data._steps_of(data.rows) for data in self.datasets)
        return sum(len(data) for data in self.datasets)

    def __iter__(self) -> Iterator[Batch]:
        """The remaining batches of the epoch, or those of the next one if the iteration before has come to the end. Raises as
        iterating over a :class:`ParquetDataset` does."""
        if self._has_ended:
            self.next_epoch()
        return self._batches()

    def _batches(self) -> Iterator[Batch]:
        parts = [iter(data) for data in self.datasets]
        shares = self._weights or [float(max(data._steps_left(), 1)) for data in self.datasets]
        while True:
            left = [index for index, data in enumerate(self.datasets) if data._steps_left()]
            if not left:
                self._has_ended = True
                return
            # The data set whose next batch is due first, with evenly spaced batches.
            index = min(left, key=lambda index: ((self._taken[index] + 1) / shares[index], index))
            batch = next(parts[index])
            self._taken[index] += 1
            batch.source = index
            yield batch

    def epochs(self, stop: int) -> Iterator[int]:
        """The numbers of the epochs from this one to before ``stop``. Advances to the next epoch after each."""
        while self.epoch < stop:
            yield self.epoch
            self.next_epoch()

    def next_epoch(self) -> None:
        """Goes to the start of the next epoch, in all workers at the same step."""
        for data in self.datasets:
            data.next_epoch()
        self._begin()

    def _begin(self) -> None:
        """Restarts the count of batches, in all workers."""
        self._has_ended = False
        self._taken = [0] * len(self.datasets)

    def state_dict(self) -> dict[str, Any]:
        """The positions of all data sets as of the last commit, for your own checkpoints; see
        :meth:`ParquetDataset.state_dict`.
        """
        return {"version": checkpoint.VERSION, "datasets": [data.state_dict() for data in self.datasets]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from the output of :meth:`state_dict`; see :meth:`ParquetDataset.load_state_dict`.

        Raises:
            ValueError: it has not one position for each data set.
        """
        positions = checkpoint.entry(state, "datasets", list)
        if len(positions) != len(self.datasets):
            raise ValueError(f"load_state_dict: {len(positions)} positions for {len(self.datasets)} data sets")
        for data, position in zip(self.datasets, positions, strict=True):
            data.load_state_dict(position)
        self._begin()

    # Called by the state, in all workers.

    def _enter(self) -> None:
        for data in self.datasets:
            data._enter()
        self._begin()

    def _agree(self) -> None:
        for data in self.datasets:
            data._agree()

    def _committed(self) -> None:
        for data in self.datasets:
            data._committed()

    def _save(self) -> list[bytes]:
        return [data._save() for data in self.datasets]

    def _restore(self, stored: Sequence[bytes]) -> None:
        for data, position in zip(self.datasets, stored, strict=True):
            data._restore(position)
        self._begin()


class WeightedSamplingReader:
    """Rows (or batches) of several readers, each drawn with its probability. Petastorm's class ends with the first of its readers.
    This class reads all readers to their end, so that each row is read once.

    Args:
        readers: at least two, with the same fields in the same form.
        probabilities: a positive number for each. Their sum need not be 1.
        seed: of the draws.

    Raises:
        ValueError: the readers differ in their form, or there is not one probability for each.
    """

    def __init__(self, readers: Sequence[Reader], probabilities: Sequence[float], seed: int = 0) -> None:
        self._readers = list(readers)
        if len(self._readers) < 2:
            raise ValueError(f"WeightedSamplingReader: two readers or more are needed, not {len(self._readers)}")
        self._weights = _weights("probabilities", probabilities, len(self._readers))
        first = self._readers[0]
        for number, other in enumerate(self._readers[1:], 1):
            for what in ("batched_output", "schema", "ngram"):
                if getattr(other, what) != getattr(first, what):
                    raise ValueError(f"WeightedSamplingReader: readers 0 and {number} differ in {what}")
        self.batched_output = first.batched_output
        self.ngram = first.ngram
        self._left = list(range(len(self._readers)))
        self._random = random.Random(seed)

    @property
    def schema(self) -> dict[str, str]:
        """Names and types of the fields."""
        return self._readers[0].schema

    @property
    def last_row_consumed(self) -> bool:
        """Whether all readers have finished."""
        return all(reader.last_row_consumed for reader in self._readers)

    def __iter__(self) -> WeightedSamplingReader:
        return self

    def __next__(self) -> Any:
        while self._left:
            weights = [self._weights[index] for index in self._left]
            (index,) = self._random.choices(self._left, weights)
            try:
                return next(self._readers[index])
            except StopIteration:
                self._left.remove(index)
        raise StopIteration

    def reset(self) -> None:
        """Restarts all readers."""
        for reader in self._readers:
            reader.reset()
        self._left = list(range(len(self._readers)))

    def stop(self) -> None:
        """Ends the iteration."""
        for reader in self._readers:
            reader.stop()

    def join(self) -> None:
        """Does nothing: threads end with the readers."""

    def __enter__(self) -> WeightedSamplingReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _weights(name: str, given: Sequence[float], count: int) -> list[float]:
    weights = [float(weight) for weight in given]
    if len(weights) != count or not all(0 < weight < float("inf") for weight in weights):
        raise ValueError(f"{name}={list(given)!r}: must be {count} positive numbers")
    return weights
