"""Listens to Spark events: which executor runs the task of which slot, and the removal of executors.

A Python object implements Spark's listener interface through py4j's callback server, so no jar is needed. Spark calls it on
the thread that serves all its listeners. The object therefore only queues events, and a separate thread processes them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Held", "Listener"]


@dataclass(frozen=True)
class Held:
    """A slot that a task holds.

    Attributes:
        group: job group of the slot.
        executor: id of the executor.
        machine: host of the executor, as Spark names it.
        attempt: id of the task attempt.
        since: when the task started, by ``time.monotonic()``.
        until: when the task ended; None while it runs.
    """

    group: str
    executor: str
    machine: str
    attempt: int
    since: float
    until: float | None = None

    def seconds(self, now: float) -> float:
        """Seconds for which the slot has been held at the time ``now``, or was held until its task ended."""
        return (now if self.until is None else self.until) - self.since


class _EventSink:
    """The object that Spark calls. It accepts every event, and queues those of five types."""

    _HANDLED = ("onJobStart", "onJobEnd", "onTaskStart", "onTaskEnd", "onExecutorRemoved")

    def __init__(self, events: queue.SimpleQueue[tuple[str, Any] | None]) -> None:
        self._events = events

    def __getattr__(self, name: str) -> Callable[[Any], None]:
        if not name.startswith("on"):
            raise AttributeError(name)
        if name in self._HANDLED:
            return lambda event: self._events.put((name, event))
        return lambda event: None

    class Java:
        """Declares the Java interface to py4j."""

        implements = ["org.apache.spark.scheduler.SparkListenerInterface"]  # noqa: RUF012, py4j wants a list


class Listener:
    """Tracks the slots that tasks hold, and the executors that were removed.

    Args:
        context: context whose events are tracked.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._events: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()
        self._sink = _EventSink(self._events)
        self._added: Any = None
        self._lock = threading.Lock()
        #: Job groups of running jobs, by the job and by its first stage.
        self._jobs: dict[int, str] = {}
        self._groups: dict[int, str] = {}
        self._held: dict[int, Held] = {}
        #: The last task of each group that has ended.
        self._ended: dict[str, Held] = {}
        self._removed: str | None = None
        self._thread = threading.Thread(target=self._read, name="elasticrun-listener", daemon=True)

    def start(self) -> None:
        """Registers the listener."""
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(self._context._gateway)
        self._thread.start()
        # py4j creates a new proxy each time that the object is passed to Java, and Spark removes only the proxy that was added.
        proxies = self._context._jvm.java.util.ArrayList()
        proxies.add(self._sink)
        self._added = proxies.get(0)
        self._context._jsc.sc().addSparkListener(self._added)

    def stop(self) -> None:
        """Removes the listener."""
        try:
            self._context._jsc.sc().removeSparkListener(self._added)
        except Exception:  # py4j raises many types when its JVM is gone
            pass
        self._events.put(None)
        self._thread.join()

    def held(self, within: float = 0.0) -> list[Held]:
        """The slots whose tasks have ended in the last ``within`` seconds, and then those that are held now."""
        since = time.monotonic() - within
        with self._lock:
            ended = (held for held in self._ended.values() if held.until is not None and held.until > since)
            return [*ended, *self._held.values()]

    @property
    def last_removed(self) -> str | None:
        """The executor that was removed last, with the reason."""
        return self._removed

    def jobs(self, group: str) -> list[int]:
        """Ids of the running jobs of a job group."""
        with self._lock:
            return [job for job, name in self._jobs.items() if name == group]

    def _read(self) -> None:
        while (entry := self._events.get()) is not None:
            name, event = entry
            try:
                with self._lock:
                    getattr(self, name)(event)
            except Exception:  # The JVM is gone, or another Spark version has a different event
                continue

    def onJobStart(self, event: Any) -> None:  # Spark's name
        """A job started: maps the job and its first stage to its job group."""
        properties = event.properties()
        group = properties.getProperty("spark.jobGroup.id") if properties is not None else None
        if group is not None:
            self._jobs[event.jobId()] = group
            self._groups[event.stageIds().head()] = group

    def onJobEnd(self, event: Any) -> None:
        """A job ended: no task of its group starts before the next job."""
        group = self._jobs.pop(event.jobId(), None)
        if group not in self._jobs.values():
            self._groups = {stage: name for stage, name in self._groups.items() if name != group}

    def onTaskStart(self, event: Any) -> None:
        """A task started: its slot is held."""
        group = self._groups.get(event.stageId())
        if group is not None:
            task = event.taskInfo()
            attempt = task.taskId()
            self._held[attempt] = Held(group, task.executorId(), task.host(), attempt, time.monotonic())

    def onTaskEnd(self, event: Any) -> None:
        """A task ended: its slot is released."""
        task = event.taskInfo()
        held = self._held.pop(task.taskId(), None) if task is not None else None
        if held is not None:
            self._ended[held.group] = replace(held, until=time.monotonic())

    def onExecutorRemoved(self, event: Any) -> None:
        """An executor was removed, together with its tasks."""
        executor = event.executorId()
        self._removed = f"executor {executor}: {event.reason()}"
        for attempt in [attempt for attempt, held in self._held.items() if held.executor == executor]:
            held = self._held.pop(attempt)
            self._ended[held.group] = replace(held, until=time.monotonic())
