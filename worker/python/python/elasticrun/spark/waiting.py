"""Says while a job waits for slots why there are too few, so that nobody waits for the elastic timeout to know."""

from __future__ import annotations

from collections.abc import Callable

from .beside import Beside
from .counts import Counts

__all__ = ["Waiting"]

#: Seconds of waiting before the first line, and the longest time between two: each is twice the one before.
_FIRST, _LONGEST = 10.0, 300.0


class Waiting(Beside):
    """Says it until it is stopped.

    Args:
        counts: workers needed to start, and below which training waits.
        held: how many slots are held now.
        why: describes in one line why there are too few.
        say: takes a line for a person.
    """

    def __init__(
        self, counts: Counts, held: Callable[[], int], why: Callable[[], str], say: Callable[[str], None]
    ) -> None:
        self._counts = counts
        self._held = held
        self._why = why
        self._say = say
        self._needed = counts.num_proc
        self._next = _FIRST
        super().__init__("waiting", _FIRST)

    def look(self) -> float:
        """Says why, unless there are enough."""
        if self._held() >= self._needed:
            # Once it has started, fewer will do.
            self._needed, self._next = self._counts.min_num_proc, _FIRST
        else:
            self._say(f"waiting for {self._needed} slot(s) of Spark: {self._why()}")
            self._next = min(self._next * 2, _LONGEST)
        return self._next
