"""Explains a shortage of slots: the capacity of the cluster, how much of it is free, and the settings that limit it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .context import setting
from .counts import Counts
from .poller import Poller

if TYPE_CHECKING:
    from pyspark import SparkContext

    from .listener import Listener
    from .slots import Slots

__all__ = ["CapacityReporter", "describe"]

#: Seconds of waiting before the first line, and maximum seconds between lines. Each pause is twice the one before.
_FIRST, _LONGEST = 10.0, 300.0
#: Seconds for tasks to end after their driver. Slots of tasks that ended within this time count as granted.
_RECENT = 3.0
#: Settings that limit the resources of an application.
_BOUNDS = ("spark.cores.max", "spark.executor.cores", "spark.task.cpus", "spark.executor.memory")
#: The limit of dynamic allocation.
_MAX_EXECUTORS = "spark.dynamicAllocation.maxExecutors"


@dataclass(frozen=True)
class _Executors:
    """Capacity of the live executors.

    Attributes:
        count: number of executors.
        cores: cores of all executors.
        busy: running tasks.
        excluded: hosts of executors that Spark has excluded.
    """

    count: int
    cores: int
    busy: int
    excluded: tuple[str, ...]

    @classmethod
    def query(cls, context: SparkContext) -> _Executors:
        found: Any = context._jsc.sc().statusStore().executorList(True)
        every = [found.apply(index) for index in range(found.size())]
        # The list contains the driver even if it runs no tasks.
        able = [executor for executor in every if executor.totalCores() > 0]
        return cls(
            len(able),
            sum(executor.totalCores() for executor in able),
            sum(executor.activeTasks() for executor in able),
            tuple(executor.hostPort().rpartition(":")[0] for executor in able if executor.isExcluded()),
        )


def describe(context: SparkContext, slots: Slots, listener: Listener) -> str:
    """Explains in one line why there are too few slots."""
    granted = slots.granted(listener.held(_RECENT))
    words = [f"{granted} of {slots.count} slot(s) granted, {slots.count - granted} pending"]
    try:
        words += _resources(context, granted)
    except Exception as error:  # py4j raises many types when its JVM is gone
        words.append(f"its JVM does not answer ({type(error).__name__})")
    if listener.last_removed:
        words.append(f"lost last: {listener.last_removed}")
    if slots.last_failure:
        words.append(f"a slot failed last with: {slots.last_failure}")
    return ", ".join(words)


def _resources(context: SparkContext, granted: int) -> list[str]:
    look_up = setting(context)
    executors = _Executors.query(context)
    cpus = int(look_up("spark.task.cpus", "1") or 1)
    free = max(0, executors.cores - cpus * max(granted, executors.busy))
    words = [f"{executors.count} executor(s) with {executors.cores} core(s), {free} of them free"]
    if not executors.count:
        words.append("no worker of the cluster has the free cores and the memory of an executor")
    if executors.excluded:
        words.append(f"excluded after failures: executors on {' '.join(executors.excluded)}")
    if (look_up("spark.dynamicAllocation.enabled", "false") or "").lower() == "true" and look_up(_MAX_EXECUTORS, None):
        words.append(f"dynamic allocation stops at {_MAX_EXECUTORS}={look_up(_MAX_EXECUTORS, None)}")
    return words + [f"{key}={value}" for key in _BOUNDS if (value := look_up(key, None))]


class CapacityReporter(Poller):
    """Reports regularly why a waiting job has too few slots, until it is stopped.

    Args:
        counts: workers needed to start, and minimum workers.
        held: returns the number of slots that are held now.
        why: explains in one line why there are too few.
        report: prints a line for the user.
    """

    def __init__(
        self, counts: Counts, held: Callable[[], int], why: Callable[[], str], report: Callable[[str], None]
    ) -> None:
        self._counts = counts
        self._held = held
        self._why = why
        self._report = report
        self._needed = counts.num_proc
        self._next = _FIRST
        super().__init__("waiting", _FIRST)

    def poll(self) -> float:
        """Reports the shortage, unless there are enough slots."""
        if self._held() >= self._needed:
            # After the start, the minimum number of workers suffices.
            self._needed, self._next = self._counts.min_num_proc, _FIRST
        else:
            self._report(f"waiting for {self._needed} slot(s) of Spark: {self._why()}")
            self._next = min(self._next * 2, _LONGEST)
        return self._next
