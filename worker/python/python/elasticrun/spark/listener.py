"""Hears from Spark which task of which slot runs on which executor, and what becomes of executors.

An object of Python that implements Spark's listener interface through py4j's callback server: no jar is needed. Spark
calls it in the thread that serves all its listeners, so it only puts events aside; a thread of its own looks into them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Held", "Listener"]


@dataclass(frozen=True)
class Held:
    """A slot that a task holds.

    Attributes:
        group: its job group.
        executor: id of the executor.
        machine: host of the executor, as Spark names it.
        attempt: id of the task's attempt.
    """

    group: str
    executor: str
    machine: str
    attempt: int


class _Ears:
    """What Spark calls; it has a method for each event there is, and looks at four."""

    _HEARD = ("onJobStart", "onTaskStart", "onTaskEnd", "onExecutorRemoved")

    def __init__(self, events: queue.SimpleQueue[tuple[str, Any] | None]) -> None:
        self._events = events

    def __getattr__(self, name: str) -> Callable[[Any], None]:
        if not name.startswith("on"):
            raise AttributeError(name)
        if name in self._HEARD:
            return lambda event: self._events.put((name, event))
        return lambda event: None

    class Java:
        """Read by py4j."""

        implements = ["org.apache.spark.scheduler.SparkListenerInterface"]  # noqa: RUF012, py4j wants a list


class Listener:
    """See the module.

    Args:
        context: whose events are heard.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._events: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()
        self._ears = _Ears(self._events)
        self._added: Any = None
        self._lock = threading.Lock()
        self._groups: dict[int, str] = {}
        self._held: dict[int, Held] = {}
        #: By group: of each the last.
        self._ended: dict[str, tuple[Held, float]] = {}
        self._removed: list[str] = []
        self._thread = threading.Thread(target=self._read, name="elasticrun-listener", daemon=True)

    def start(self) -> None:
        """Begins to listen."""
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(self._context._gateway)
        self._thread.start()
        # Each time it crosses over, our object gets another stand-in, and Spark removes the very one that was added.
        crossed = self._context._jvm.java.util.ArrayList()
        crossed.add(self._ears)
        self._added = crossed.get(0)
        self._context._jsc.sc().addSparkListener(self._added)

    def stop(self) -> None:
        """Listens no more."""
        try:
            self._context._jsc.sc().removeSparkListener(self._added)
        except Exception:  # Whatever py4j raises when its JVM is gone
            pass
        self._events.put(None)
        self._thread.join()

    def held(self, lately: float = 0.0) -> list[Held]:
        """The slots that are held now, and those whose tasks have ended in so many seconds."""
        since = time.monotonic() - lately
        with self._lock:
            return [*self._held.values(), *(held for held, at in self._ended.values() if at > since)]

    @property
    def last_removed(self) -> str | None:
        """Which executor was removed last, and why."""
        return self._removed[-1] if self._removed else None

    def _read(self) -> None:
        while (entry := self._events.get()) is not None:
            name, event = entry
            try:
                with self._lock:
                    getattr(self, name)(event)
            except Exception:  # The JVM is gone, or a release of Spark says something else
                continue

    def onJobStart(self, event: Any) -> None:  # Spark's name
        """A job of a group began."""
        properties = event.properties()
        group = properties.getProperty("spark.jobGroup.id") if properties is not None else None
        if group is not None:
            self._groups[event.stageIds().head()] = group

    def onTaskStart(self, event: Any) -> None:
        """A task runs."""
        group = self._groups.get(event.stageId())
        if group is not None:
            task = event.taskInfo()
            attempt = task.taskId()
            self._held[attempt] = Held(group, task.executorId(), task.host(), attempt)

    def onTaskEnd(self, event: Any) -> None:
        """A task runs no more."""
        task = event.taskInfo()
        held = self._held.pop(task.taskId(), None) if task is not None else None
        if held is not None:
            self._ended[held.group] = (held, time.monotonic())

    def onExecutorRemoved(self, event: Any) -> None:
        """An executor is gone, and its tasks with it."""
        executor = event.executorId()
        self._removed.append(f"executor {executor}: {event.reason()}")
        self._held = {a: held for a, held in self._held.items() if held.executor != executor}
