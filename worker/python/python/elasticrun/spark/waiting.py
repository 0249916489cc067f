"""Says while a job waits for slots why there are too few, so that nobody waits for the elastic time-out to know."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .counts import Counts

__all__ = ["Waiting"]

#: Seconds of waiting before the first line, and the longest time between two: each is twice the one before.
_FIRST, _LONGEST = 10.0, 300.0


class Waiting:
    """Watches until it is stopped.

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
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="elasticrun-waiting", daemon=True)

    def start(self) -> None:
        """Begins to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watches no more."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        pause, needed = _FIRST, self._counts.num_proc
        while not self._stop.wait(pause):
            if self._held() >= needed:
                # Once it has started, fewer will do.
                pause, needed = _FIRST, self._counts.min_num_proc
                continue
            self._say(f"waiting for {needed} slot(s) of Spark: {self._why()}")
            pause = min(pause * 2, _LONGEST)
