"""How far an epoch is, and how fast it goes."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

__all__ = ["Progress"]

#: Seconds that a rate looks back.
_WINDOW = 10.0


@dataclass(frozen=True)
class Progress:
    """As of the last commit, where nothing else is said."""

    #: The epoch, from 0.
    epoch: int
    #: Rows that all workers together have processed.
    done: int
    #: Rows of the epoch.
    total: int
    #: Rows that this worker has left now.
    own_left: int
    #: Steps that are left.
    steps_left: int
    #: Rows a second that this worker has got, over the last ten seconds.
    rows_per_second: float
    #: Rows a second of each worker by rank, of what the commits of this round hold, over the last ten seconds; none before
    #: its first commit.
    rows_per_second_by_rank: tuple[float, ...]

    @property
    def total_rows_per_second(self) -> float:
        """Rows a second of all workers, of what commits hold; 0 before there is anything to measure."""
        return sum(self.rows_per_second_by_rank)

    @property
    def seconds_left(self) -> float | None:
        """How long the rest of the epoch takes at this rate, if there is one."""
        rate = self.total_rows_per_second
        return (self.total - self.done) / rate if rate > 0 else None

    def __str__(self) -> str:
        share = self.done / self.total if self.total else 1.0
        said = f"epoch {self.epoch}: {self.done:,} of {self.total:,} rows ({share:.0%}), {self.rows_per_second:,.0f} rows/s here"
        if self.seconds_left is not None:
            said += (
                f", {self.total_rows_per_second:,.0f} by {len(self.rows_per_second_by_rank)} workers,"
                f" {self.seconds_left:,.0f} s left"
            )
        return said


class Rate:
    """Rows a second of this process."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()
        self._rows = 0

    def count(self, rows: int) -> None:
        """So many rows were given out now."""
        now = time.monotonic()
        self._rows += rows
        if not self._counts or now - self._counts[-1][0] > _WINDOW / 100:
            self._counts.append((now, self._rows))
        while now - self._counts[0][0] > _WINDOW:
            self._counts.popleft()

    def per_second(self) -> float:
        """Over the last ten seconds; 0 before there is anything to measure."""
        if not self._counts:
            return 0.0
        (began, rows), now = self._counts[0], time.monotonic()
        return (self._rows - rows) / (now - began) if now > began else 0.0
