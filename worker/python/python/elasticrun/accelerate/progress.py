"""How far a training loop is."""

from __future__ import annotations

from collections.abc import Iterator


class Progress:
    """The epoch and the number of optimizer steps, which continue in the next round.

    Attributes:
        epoch: the epoch under way.
        steps: optimizer steps that are done, in all epochs.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.steps = 0

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs from the one under way to ``count``, for a loop over them."""
        while self.epoch < count:
            yield self.epoch
            self.epoch += 1
            self._epoch_done()

    def _epoch_done(self) -> None:
        """Called between two epochs."""
