"""Slots that Spark lends: one Spark job for each, submitted again when it is lost.

One job with many tasks would not do. A lost executor counts against ``spark.task.maxFailures``, and the fourth loss of
one task would end all the others with it. A job of its own ends alone.
"""

from __future__ import annotations

import functools
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from .listener import Held
from .reason import reason
from .task import Order, Outcome, serve

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Slots"]

#: Seconds before a slot that was lost is asked for again: at first, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
#: A slot that was held for so many seconds was lost by chance.
_HELD = 30.0
#: Seconds between two looks at jobs that are being cancelled.
_AGAIN = 0.1
#: Seconds after which jobs that cannot be cancelled are left to Spark.
_PATIENCE = 30.0


class Slots:
    """Asks Spark for slots until it is told to stop.

    Args:
        context: whose executors are used.
        order: what each task is told, but for its slot.
        count: how many slots are wanted.
        say: takes a line for a person.
    """

    def __init__(self, context: SparkContext, order: Order, count: int, say: Callable[[str], None]) -> None:
        self._context = context
        self._order = order
        self._say = say
        self._ending = threading.Event()
        self._name = secrets.token_hex(4)
        self._failures: dict[int, str] = {}
        self._lock = threading.Lock()
        #: Those that are not asked for again.
        self._left: set[int] = set()
        self._threads = [self._thread(slot) for slot in range(count)]

    def start(self) -> None:
        """Asks for all of them."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Gives all of them back; returns when no job of them is left. What was not granted yet never starts."""
        with self._lock:
            self._ending.set()
        deadline = time.monotonic() + _PATIENCE
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < deadline:
            for slot, thread in enumerate(self._threads):
                if thread.is_alive():
                    self._cancel(slot)
            for thread in self._threads:
                # Again, since one may just have been about to submit.
                thread.join(_AGAIN / len(self._threads))

    def replace(self, slot: int) -> None:
        """Asks for another slot at once in the place of one that is being left; that one is not asked for again.

        It is held until the job has its next round, and that may need the other one.
        """
        with self._lock:
            if self._ending.is_set() or slot in self._left:
                return
            self._left.add(slot)
            thread = self._thread(len(self._threads))
            self._threads.append(thread)
            # Within the lock: stop() joins it.
            thread.start()

    @property
    def count(self) -> int:
        """How many slots are wanted."""
        with self._lock:
            return len(self._threads) - len(self._left)

    @property
    def last_failure(self) -> str | None:
        """What was last said of a slot that failed, if any did."""
        return next(reversed(self._failures.values()), None)

    def _thread(self, slot: int) -> threading.Thread:
        from pyspark import InheritableThread

        # A thread of Python has a thread of the JVM of its own, and job groups belong to those.
        thread: threading.Thread = InheritableThread(target=self._hold, args=(slot,))
        thread.name, thread.daemon = f"elasticrun-slot-{slot}", True
        return thread

    def group(self, slot: int) -> str:
        """The job group of a slot, which no other has."""
        return f"elasticrun-{self._name}-{slot}"

    def of_group(self, group: str) -> int | None:
        """The slot of a job group; none if it is somebody else's."""
        return next((slot for slot in range(len(self._threads)) if self.group(slot) == group), None)

    def granted(self, held: Iterable[Held]) -> int:
        """How many of the slots that are wanted are among those that tasks hold; a context may have other jobs."""
        groups = {one.group for one in held}
        with self._lock:
            wanted = [slot for slot in range(len(self._threads)) if slot not in self._left]
        return sum(self.group(slot) in groups for slot in wanted)

    def _cancel(self, slot: int) -> None:
        try:
            self._context.cancelJobGroup(self.group(slot))
        except Exception as error:  # Whatever py4j raises when its JVM is gone
            self._failures[slot] = str(error)

    def _hold(self, slot: int) -> None:
        pause = _FIRST_PAUSE
        while not self._ending.is_set():
            began = time.monotonic()
            failure = self._lend(slot)
            if self._ending.is_set() or slot in self._left:
                return
            if failure is not None and self._failures.get(slot) != failure:
                self._failures[slot] = failure
                self._say(f"slot {slot} is lost and asked for again: {failure}")
            if time.monotonic() - began > _HELD:
                pause = _FIRST_PAUSE
            self._ending.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _lend(self, slot: int) -> str | None:
        """One Spark job. Gives why the slot is lost."""
        context = self._context
        task = functools.partial(serve, replace(self._order, slot=slot))
        try:
            context.setJobGroup(self.group(slot), f"elasticrun: slot {slot}", interruptOnCancel=True)
            outcomes: list[Outcome] = context.parallelize([slot], 1).mapPartitions(task).collect()
        except Exception as error:  # Py4j's, Spark's and those of the task
            return reason(error)
        outcome = outcomes[0]
        return None if outcome.code == 0 else outcome.words or f"its service ended with {outcome.code}"
