"""How far a training loop is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any


class Progress:
    """The epoch, and values of the script such as a count of steps. They continue in the next round.

    Attributes:
        epoch: the epoch under way.
    """

    if TYPE_CHECKING:
        # The script chooses the values.
        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self, **values: object) -> None:
        vars(self).update(values, epoch=0)

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs from the one under way to ``count``, for a loop over them."""
        while self.epoch < count:
            yield self.epoch
            self.epoch += 1
            self._epoch_done()

    def _epoch_done(self) -> None:
        """Called between two epochs."""
