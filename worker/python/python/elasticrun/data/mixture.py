"""Several data sets read as one, in proportion to weights."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .batch import Batch
from .dataset import ParquetDataset

if TYPE_CHECKING:
    from types import TracebackType

    from .readers import Reader

__all__ = ["Mixture", "WeightedSamplingReader"]


class Mixture:
    """The batches of several data sets, as many of each as its weight says; each row of each of them once in an epoch.

        data = Mixture([web, books], weights=[3, 1])
        state = ObjectState(model=..., data=data)

    A batch is of one data set: :attr:`Batch.source` says which. At any time, the batches of a data set since the start of the epoch
    or of the round are within one of its share, among those that are not through; one that is through is left out. All workers
    take a step from the same data set, as the choice is no chance.

    Args:
        datasets: at least one. They are parts of the mixture, and not of the state themselves.
        weights: a positive number for each; batches go by them, so with different batch sizes rows do not. In proportion to the
            steps that each has in an epoch, if none are given: so all end together.

    Raises:
        ValueError: not one weight for each data set, or one that is not positive.
    """

    def __init__(self, datasets: Sequence[ParquetDataset], weights: Sequence[float] | None = None) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("Mixture: at least one data set is needed")
        self._weights = None if weights is None else _weights("weights", weights, len(self.datasets))
        self._taken = [0] * len(self.datasets)

    @property
    def epoch(self) -> int:
        """The epoch, from 0; the same for all data sets."""
        return self.datasets[0].epoch

    @property
    def rows(self) -> int:
        """Rows of an epoch, of all data sets and workers."""
        return sum(data.rows for data in self.datasets)

    def __len__(self) -> int:
        """Batches that are left of this epoch, the same number for all workers."""
        return sum(len(data) for data in self.datasets)

    def __iter__(self) -> Iterator[Batch]:
        """Batches to the end of the epoch. Raises as iterating over a :class:`ParquetDataset` does."""
        parts = [iter(data) for data in self.datasets]
        shares = self._weights or [float(max(len(data), 1)) for data in self.datasets]
        while True:
            left = [place for place, data in enumerate(self.datasets) if len(data)]
            if not left:
                return
            # Whose next batch is due first, if those of each come evenly.
            place = min(left, key=lambda place: ((self._taken[place] + 1) / shares[place], place))
            batch = next(parts[place])
            self._taken[place] += 1
            batch.source = place
            yield batch

    def epochs(self, stop: int) -> Iterator[int]:
        """The numbers of the epochs from this one to before ``stop``; goes on to the next behind each."""
        while self.epoch < stop:
            yield self.epoch
            self.next_epoch()

    def next_epoch(self) -> None:
        """Goes to the start of the next epoch, in all workers at the same step."""
        for data in self.datasets:
            data.next_epoch()
        self._begin()

    def _begin(self) -> None:
        """Shares count from here on: all workers are here."""
        self._taken = [0] * len(self.datasets)

    # What the state calls, in all workers.

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
        for data, own in zip(self.datasets, stored, strict=True):
            data._restore(own)
        self._begin()


class WeightedSamplingReader:
    """Rows (or batches) of several readers, each drawn by chance with its probability. Petastorm's ends when the first of its
    readers does; this one leaves that out and reads the others to their ends, so that each row comes once.

    Args:
        readers: at least two, which give the same fields in the same form.
        probabilities: a positive number for each; their sum need not be 1.
        seed: of the draws.

    Raises:
        ValueError: readers that do not fit together, or not one probability for each.
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
        """Whether all readers are through."""
        return all(reader.last_row_consumed for reader in self._readers)

    def __iter__(self) -> WeightedSamplingReader:
        return self

    def __next__(self) -> Any:
        while self._left:
            weights = [self._weights[place] for place in self._left]
            (place,) = self._random.choices(self._left, weights)
            try:
                return next(self._readers[place])
            except StopIteration:
                self._left.remove(place)
        raise StopIteration

    def reset(self) -> None:
        """Reads all of them again."""
        for reader in self._readers:
            reader.reset()
        self._left = list(range(len(self._readers)))

    def stop(self) -> None:
        """Ends the iteration."""
        for reader in self._readers:
            reader.stop()

    def join(self) -> None:
        """Nothing to wait for: threads end with the readers."""

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
