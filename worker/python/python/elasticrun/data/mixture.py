"""Several data sets, read in proportion to weights."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import DataError
from . import checkpoint
from .ahead import Awaited
from .batch import Batch
from .dataset import ParquetDataset
from .making import B, Made

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

    With ``steps``, data sets repeat: one that has come to its end goes on with its next epoch, and the weights hold to the end.
    An epoch of the mixture has that many batches, and the next one goes on where the data sets are. Each row is read once in each
    epoch of its data set.

    Args:
        datasets: at least one. The mixture is part of the state, and the data sets are not.
        weights: a positive number for each. They apply to batches, and not to rows if batch sizes differ. By default, the number
            of steps of each data set in an epoch, so that all end together.
        steps: batches of an epoch, at least 1; the same in all workers. By default an epoch ends with the last row of all data
            sets.

    Raises:
        ValueError: not one weight for each data set, or one that is not positive. Data sets repeat, and one has no rows.
    """

    def __init__(
        self, datasets: Sequence[ParquetDataset], weights: Sequence[float] | None = None, *, steps: int | None = None
    ) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("Mixture: at least one data set is needed")
        if steps is not None and steps < 1:
            raise ValueError(f"Mixture(steps={steps}): must be at least 1")
        for index, data in enumerate(self.datasets):
            if steps is not None and data.rows == 0:
                raise ValueError(f"Mixture: data set {index} has no rows, so it cannot be repeated")
        self._weights = None if weights is None else _weights("weights", weights, len(self.datasets))
        self._steps = steps
        self._taken = [0] * len(self.datasets)
        #: The epoch of a mixture whose data sets repeat.
        self._epoch = 0
        #: Whether all batches of this epoch were returned.
        self._has_ended = False

    @property
    def epoch(self) -> int:
        """The epoch, from 0. Without ``steps`` it is that of all data sets."""
        return self.datasets[0].epoch if self._steps is None else self._epoch

    @property
    def rows(self) -> int:
        """Rows of all data sets, of all workers together: those of an epoch, unless data sets repeat."""
        return sum(data.rows for data in self.datasets)

    def __len__(self) -> int:
        """Batches of the next iteration; see :class:`ParquetDataset`."""
        if self._has_ended:
            return self._steps_of_epoch()
        return sum(len(data) for data in self.datasets) if self._steps is None else self._steps_left()

    def _steps_of_epoch(self) -> int:
        """Batches of a whole epoch."""
        return sum(data._steps_of_epoch() for data in self.datasets) if self._steps is None else self._steps

    def _steps_left(self) -> int:
        """Batches of this epoch that are left."""
        if self._steps is not None:
            return self._steps - sum(self._taken)
        return sum(data._steps_left() for data in self.datasets)

    def __iter__(self) -> Iterator[Batch]:
        """The remaining batches of the epoch, or those of the next one if the iteration before has come to the end. Raises as
        iterating over a :class:`ParquetDataset` does."""
        self._continue()
        return self._batches()

    def _continue(self) -> None:
        """Begins an iteration."""
        if self._has_ended:
            self.next_epoch()

    def _batches(self) -> Iterator[Batch]:
        for index, batch in self._in_turn(lambda data: iter(data)):
            batch.source = index
            yield batch

    def _made(self, begin: Callable[[ParquetDataset, Batch], Awaited[Any]], ahead: int) -> Iterator[Made]:
        """See :class:`ParquetDataset`."""

        def made(data: ParquetDataset) -> Iterator[Made]:
            data._continue()
            return data._made(begin, ahead)

        return (item for _, item in self._in_turn(made))

    def _in_turn(self, begin: Callable[[ParquetDataset], Iterator[B]]) -> Iterator[tuple[int, B]]:
        """The items of all data sets, each with the index of its own."""
        parts = [begin(data) for data in self.datasets]
        shares = self._weights or self._steps_of_parts()
        while True:
            left = [index for index, data in enumerate(self.datasets) if data._steps_left() or self._steps is not None]
            if not left or sum(self._taken) == self._steps:
                self._has_ended = True
                return
            # The data set whose next batch is due first, with evenly spaced batches.
            index = min(left, key=lambda index: ((self._taken[index] + 1) / shares[index], index))
            batch = next(parts[index], None)
            if batch is None:
                if self._steps is None:
                    # It has ended before its steps: a predicate has dropped rows.
                    continue
                parts[index] = begin(self.datasets[index])
                batch = next(parts[index], None)
                if batch is None:
                    raise DataError(f"Mixture: an epoch of data set {index} has no steps, so it cannot be repeated")
            self._taken[index] += 1
            yield index, batch

    def _steps_of_parts(self) -> list[float]:
        """The steps that each data set has left, or that an epoch of it has if it is repeated."""
        steps = [data._steps_left() if self._steps is None else data._steps_of_epoch() for data in self.datasets]
        return [float(max(count, 1)) for count in steps]

    def epochs(self, stop: int) -> Iterator[int]:
        """The numbers of the epochs from this one to before ``stop``. Advances to the next epoch after each."""
        while self.epoch < stop:
            yield self.epoch
            self.next_epoch()

    def next_epoch(self) -> None:
        """Goes to the start of the next epoch, in all workers at the same step. With ``steps``, data sets go on where they are."""
        if self._steps is None:
            for data in self.datasets:
                data.next_epoch()
        self._epoch += 1
        self._begin()

    def _begin(self) -> None:
        """Restarts the count of batches, in all workers."""
        self._has_ended = False
        self._taken = [0] * len(self.datasets)

    def state_dict(self) -> dict[str, Any]:
        """The positions of all data sets as of the last commit, for your own checkpoints; see
        :meth:`ParquetDataset.state_dict`.
        """
        parts = [data.state_dict() for data in self.datasets]
        state = {"version": checkpoint.VERSION, "datasets": parts}
        if self._steps is not None:
            state |= {"epoch": self._epoch, "taken": list(self._taken)}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from the output of :meth:`state_dict`; see :meth:`ParquetDataset.load_state_dict`.

        Raises:
            ValueError: it has not one position for each data set, or its data sets repeat and these do not, or the reverse.
        """
        positions = checkpoint.entry(state, "datasets", list)
        if len(positions) != len(self.datasets):
            raise ValueError(f"load_state_dict: {len(positions)} positions for {len(self.datasets)} data sets")
        if ("taken" in state) != (self._steps is not None):
            raise ValueError(
                "load_state_dict: data sets repeat in one of the two mixtures only: pass steps to both or to none"
            )
        for data, position in zip(self.datasets, positions, strict=True):
            data.load_state_dict(position)
        self._begin()
        if self._steps is not None:
            self._epoch, self._taken = (
                checkpoint.entry(state, "epoch", int),
                list(checkpoint.entry(state, "taken", list)),
            )

    # Called by the state, in all workers.

    def _enter(self) -> None:
        for data in self.datasets:
            data._enter()
        self._has_ended = False
        if self._steps is None:
            self._begin()

    def _agree(self) -> None:
        for data in self.datasets:
            data._agree()

    def _committed(self) -> None:
        for data in self.datasets:
            data._committed()

    def _save(self) -> Any:
        positions = [data._save() for data in self.datasets]
        return positions if self._steps is None else (positions, self._epoch, list(self._taken))

    def _restore(self, stored: Any) -> None:
        positions, epoch, taken = (stored, 0, None) if isinstance(stored, list) else stored
        for data, position in zip(self.datasets, positions, strict=True):
            data._restore(position)
        self._begin()
        if self._steps is not None and taken is not None:
            self._epoch, self._taken = epoch, list(taken)


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
