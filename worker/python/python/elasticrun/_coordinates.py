"""Data coordinates: which workers of a round read the same rows.

By default each worker has a coordinate of its own: its rank. Workers that compute one step together on the same rows (tensor or
pipeline parallel) have one coordinate. They hold the same share of a data set, and count its rows once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from . import lifecycle
from .errors import CollectiveMismatch

T = TypeVar("T")


@dataclass(frozen=True)
class DataCoordinates:
    """The coordinates of a round.

    Attributes:
        rank: rank of this worker.
        ranks: the ranks of each coordinate, in ascending order.
    """

    rank: int
    ranks: Sequence[Sequence[int]]

    @property
    def index(self) -> int:
        """The coordinate of this worker."""
        return next(index for index, ranks in enumerate(self.ranks) if self.rank in ranks)

    @property
    def count(self) -> int:
        """The number of coordinates."""
        return len(self.ranks)

    @property
    def is_first(self) -> bool:
        """Whether this worker has the lowest rank of its coordinate."""
        return self.ranks[self.index][0] == self.rank

    def firsts(self, of_ranks: Sequence[T]) -> list[T]:
        """The values of the lowest rank of each coordinate, of values by rank."""
        return [of_ranks[ranks[0]] for ranks in self.ranks]

    def agreed(self, of_ranks: Sequence[T], what: str) -> list[T]:
        """As :meth:`firsts`, if all workers of a coordinate have the same value.

        Raises:
            CollectiveMismatch: they do not. All workers raise it, if all have the same values.
        """
        for ranks in self.ranks:
            for rank in ranks[1:]:
                if of_ranks[rank] != of_ranks[ranks[0]]:
                    raise CollectiveMismatch(
                        f"{what}: ranks {ranks[0]} and {rank} read the same rows, and have not processed the same number of"
                        " batches: call next_batch and commit at the same steps in all workers of a data coordinate"
                    )
        return self.firsts(of_ranks)


#: The coordinates that a state has set, and the epoch and number of their round.
_set: tuple[tuple[int, int], DataCoordinates] | None = None


def enter(coordinates: DataCoordinates) -> None:
    """Sets the coordinates of the current round."""
    global _set
    world = lifecycle.world()
    _set = (world.epoch, world.round), coordinates


def current() -> DataCoordinates:
    """The coordinates of the current round."""
    if _set is not None:
        world = lifecycle.world()
        if _set[0] == (world.epoch, world.round):
            return _set[1]
    return DataCoordinates(lifecycle.rank(), [(rank,) for rank in range(lifecycle.size())])
