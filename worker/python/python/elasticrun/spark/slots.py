"""Slots on Spark executors: one Spark job for each slot, which is submitted again when the slot is lost.

A single job with many tasks would not work: a lost executor counts against ``spark.task.maxFailures``, and the fourth loss of
one task would end all the others. A separate job for each slot fails alone.
"""

from __future__ import annotations

import functools
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from .error_text import SlotFailure, slot_failure
from .listener import Held
from .permanent_failures import PermanentFailures
from .task import Outcome, TaskSpec, serve

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Slots"]

#: Seconds before a lost slot is requested again: initially, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
#: The loss of a slot that was held for this many seconds resets the pause.
_STABLE_AFTER = 30.0
#: Seconds between two attempts to cancel the remaining jobs.
_CANCEL_INTERVAL = 0.1
#: Seconds after which stop() no longer relies on known jobs.
_LISTENER_TIMEOUT = 2.0
#: Seconds after which stop() gives up on jobs that cannot be cancelled.
_TIMEOUT = 30.0


class Slots:
    """Requests slots from Spark until it is stopped.

    Args:
        context: context whose executors are used.
        spec: specification of each task, except its slot number.
        count: number of slots to request.
        report: prints a line for the user.
        end: ends the job. It is called once no slot can be used.
        jobs: returns the ids of the Spark jobs of a group that run, as far as they are known.
        held: returns the slots whose tasks have ended, and then those that tasks hold now. They may contain slots of other jobs.

    Attributes:
        unusable: why no slot can be used; None while one may be.
    """

    def __init__(
        self,
        context: SparkContext,
        spec: TaskSpec,
        count: int,
        report: Callable[[str], None],
        end: Callable[[], object],
        jobs: Callable[[str], Iterable[int]],
        held: Callable[[], Iterable[Held]],
    ) -> None:
        self._context = context
        self._spec = spec
        self._report = report
        self._end = end
        self._jobs = jobs
        self._held = held
        self.unusable: str | None = None
        self._ending = threading.Event()
        self._name = secrets.token_hex(4)
        self._failures: dict[int, str] = {}
        self._reported: dict[int, str] = {}
        self._permanent = PermanentFailures()
        self._lock = threading.Lock()
        #: Slots that are not requested again.
        self._retired: set[int] = set()
        self._threads = [self._thread(slot) for slot in range(count)]

    def start(self) -> None:
        """Requests all slots."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Releases all slots. Returns when none of their jobs is left. Slots that were not granted yet never start."""
        with self._lock:
            self._ending.set()
        began = time.monotonic()
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < began + _TIMEOUT:
            for slot, thread in enumerate(self._threads):
                if thread.is_alive():
                    self._cancel(slot, time.monotonic() > began + _LISTENER_TIMEOUT)
            for thread in self._threads:
                # The cancellation repeats, because a thread may have submitted a job after the previous one.
                thread.join(_CANCEL_INTERVAL / len(self._threads))

    def replace(self, slot: int) -> None:
        """Requests a replacement for a slot that drains, immediately. The drained slot is not requested again.

        The drained slot is held until the next round begins, and the next round may need the replacement.
        """
        with self._lock:
            if self._ending.is_set() or slot in self._retired:
                return
            self._retired.add(slot)
            thread = self._thread(len(self._threads))
            self._threads.append(thread)
            # Started under the lock, because stop() joins it.
            thread.start()

    @property
    def count(self) -> int:
        """Number of requested slots."""
        with self._lock:
            return len(self._threads) - len(self._retired)

    @property
    def last_failure(self) -> str | None:
        """The error of the slot that failed last, if any."""
        return next(reversed(self._failures.values()), None)

    def _thread(self, slot: int) -> threading.Thread:
        from pyspark import InheritableThread

        # Each Python thread has its own JVM thread, and a job group is a property of the JVM thread.
        thread: threading.Thread = InheritableThread(target=self._hold, args=(slot,))
        thread.name, thread.daemon = f"elasticrun-slot-{slot}", True
        return thread

    def group(self, slot: int) -> str:
        """The unique job group of a slot."""
        return f"elasticrun-{self._name}-{slot}"

    def slot_of_group(self, group: str) -> int | None:
        """The slot of a job group; None if the group belongs to another job."""
        return next((slot for slot in range(len(self._threads)) if self.group(slot) == group), None)

    def granted(self, held: Iterable[Held]) -> int:
        """Number of requested slots among those in ``held``, which may contain slots of other jobs.

        Slots whose executor could run no task do not count, until they run on another one.
        """
        now = time.monotonic()
        held_for = {slot.group: slot.seconds(now) for slot in held}
        with self._lock:
            requested = [slot for slot in self._requested() if self.group(slot) in held_for]
            return sum(not self._permanent.has_failed(slot, held_for[self.group(slot)]) for slot in requested)

    def _requested(self) -> list[int]:
        return [slot for slot in range(len(self._threads)) if slot not in self._retired]

    def _cancel(self, slot: int, unknown: bool) -> None:
        """Cancels the Spark job of a slot.

        Spark warns of a job group whose job has just ended, but not of such a job. So the group is cancelled only if its job may be
        ``unknown``.
        """
        try:
            for job in self._jobs(self.group(slot)):
                self._context._jsc.sc().cancelJob(job)
            if unknown:
                self._context.cancelJobGroup(self.group(slot))
        except Exception:  # py4j raises many types when its JVM is gone; the watchdog reports that
            pass

    def _hold(self, slot: int) -> None:
        pause = _FIRST_PAUSE
        while not self._ending.is_set():
            began = time.monotonic()
            failure = self._run_job(slot)
            if self._ending.is_set() or slot in self._retired:
                return
            if failure is not None:
                self._failures[slot] = failure.text
                if self._is_hopeless(slot, failure):
                    self._report_failure(slot, failure)
                    self._end()
                    return
            if time.monotonic() - began > _STABLE_AFTER:
                pause = _FIRST_PAUSE
            if self._ending.wait(pause):
                # At Ctrl-C, pyspark cancels all jobs before the program learns of it.
                return
            if failure is not None:
                self._report_failure(slot, failure)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _report_failure(self, slot: int, failure: SlotFailure) -> None:
        with self._lock:
            # A permanent failure is the same for all slots.
            known = self._reported.values() if failure.permanent else [self._reported.get(slot)]
            is_new = failure.text not in known
            self._reported[slot] = failure.text
        if is_new:
            self._report(f"slot {slot} is lost and asked for again: {failure.text}")

    def _is_hopeless(self, slot: int, failure: SlotFailure) -> bool:
        """Records a failure. Returns whether no slot can be used, and this failure is the first to show it."""
        now = time.monotonic()
        tasks = list(self._held())
        since = {task.group: task.since for task in tasks if task.until is None}
        # The event of the end of this slot's task may have come or not.
        held_for = max((task.seconds(now) for task in tasks if task.group == self.group(slot)), default=0.0)
        with self._lock:
            self._permanent.add(slot, failure, held_for)
            if self.unusable is not None:
                return False
            requested = self._requested()
            # The job of this slot has ended, even if the event of that is yet to come.
            held = {
                other: since[self.group(other)] for other in requested if other != slot and self.group(other) in since
            }
            self.unusable = self._permanent.reason(requested, held, now)
            return self.unusable is not None

    def _run_job(self, slot: int) -> SlotFailure | None:
        """Runs the Spark job of a slot once. Returns the reason for the loss of the slot."""
        context = self._context
        task = functools.partial(serve, replace(self._spec, slot=slot))
        try:
            context.setJobGroup(self.group(slot), f"elasticrun: slot {slot}", interruptOnCancel=True)
            outcomes: list[Outcome] = context.parallelize([slot], 1).mapPartitions(task).collect()
        except Exception as error:  # of py4j, Spark or the task
            return slot_failure(error)
        with self._lock:
            self._permanent.add_served(slot)
        outcome = outcomes[0]
        if outcome.code == 0:
            return None
        return SlotFailure(outcome.stderr_tail or f"its service ended with {outcome.code}")
