"""The progress and the rate of an epoch."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

__all__ = ["Progress"]

#: Seconds over which a rate is averaged.
_WINDOW = 10.0


@dataclass(frozen=True)
class Progress:
    """Progress in an epoch. Numbers are as of the last commit unless noted."""

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
    #: Rows a second that this worker reads, over the last ten seconds.
    rows_per_second: float
    #: Rows a second that each rank commits, over the last ten seconds. Empty before the first commit of the round.
    rows_per_second_by_rank: tuple[float, ...]

    @property
    def total_rows_per_second(self) -> float:
        """Rows a second that all workers commit; 0 before the first commit of the round."""
        return sum(self.rows_per_second_by_rank)

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds to the end of the epoch; None without a rate."""
        rate = self.total_rows_per_second
        return (self.total - self.done) / rate if rate > 0 else None

    def __str__(self) -> str:
        share = self.done / self.total if self.total else 1.0
        text = f"epoch {self.epoch}: {self.done:,} of {self.total:,} rows ({share:.0%}), {self.rows_per_second:,.0f} rows/s here"
        if self.seconds_left is not None:
            text += (
                f", {self.total_rows_per_second:,.0f} by {len(self.rows_per_second_by_rank)} workers,"
                f" {self.seconds_left:,.0f} s left"
            )
        return text


class Rate:
    """Rows a second of this process."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()
        self._rows = 0

    def count(self, rows: int) -> None:
        """Records that rows were returned now."""
        now = time.monotonic()
        self._rows += rows
        if not self._counts or now - self._counts[-1][0] > _WINDOW / 100:
            self._counts.append((now, self._rows))
        while now - self._counts[0][0] > _WINDOW:
            self._counts.popleft()

    def per_second(self) -> float:
        """Rows a second over the last ten seconds; 0 before the first batch."""
        if not self._counts:
            return 0.0
        (began, rows), now = self._counts[0], time.monotonic()
        return (self._rows - rows) / (now - began) if now > began else 0.0
