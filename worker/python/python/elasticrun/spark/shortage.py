"""Why there are too few slots: what Spark has, what of it is free, and what keeps it from giving more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .context import setting

if TYPE_CHECKING:
    from pyspark import SparkContext

    from .listener import Listener
    from .slots import Slots

__all__ = ["describe"]

#: Seconds in which tasks end with a driver that has given up: those that ended so lately held slots until then.
_LATELY = 3.0
#: Settings that bound what a program is given.
_BOUNDS = ("spark.cores.max", "spark.executor.cores", "spark.task.cpus", "spark.executor.memory")
#: The bound of dynamic allocation.
_MOST = "spark.dynamicAllocation.maxExecutors"


@dataclass(frozen=True)
class _Executors:
    """Executors that are alive.

    Attributes:
        count: how many they are.
        cores: of all of them.
        busy: tasks that they run.
        excluded: hosts of those that get no tasks.
    """

    count: int
    cores: int
    busy: int
    excluded: tuple[str, ...]

    @classmethod
    def of(cls, context: SparkContext) -> _Executors:
        found: Any = context._jsc.sc().statusStore().executorList(True)
        every = [found.apply(index) for index in range(found.size())]
        # A driver that runs no tasks is listed, too.
        able = [executor for executor in every if executor.totalCores() > 0]
        return cls(
            len(able),
            sum(executor.totalCores() for executor in able),
            sum(executor.activeTasks() for executor in able),
            tuple(executor.hostPort().rpartition(":")[0] for executor in able if executor.isExcluded()),
        )


def describe(context: SparkContext, slots: Slots, listener: Listener) -> str:
    """Why there are too few slots, in one line for a person."""
    granted = slots.granted(listener.held(_LATELY))
    words = [f"{granted} of {slots.count} slot(s) granted, {slots.count - granted} pending"]
    try:
        words += _resources(context, granted)
    except Exception as error:  # Whatever py4j raises when its JVM is gone
        words.append(f"its JVM does not answer ({type(error).__name__})")
    if listener.last_removed:
        words.append(f"lost last: {listener.last_removed}")
    if slots.last_failure:
        words.append(f"a slot failed last with: {slots.last_failure}")
    return ", ".join(words)


def _resources(context: SparkContext, granted: int) -> list[str]:
    look_up = setting(context)
    executors = _Executors.of(context)
    cpus = int(look_up("spark.task.cpus", "1") or 1)
    free = max(0, executors.cores - cpus * max(granted, executors.busy))
    words = [f"{executors.count} executor(s) with {executors.cores} core(s), {free} of them free"]
    if not executors.count:
        words.append("no worker of the cluster has the free cores and the memory of an executor")
    if executors.excluded:
        words.append(f"excluded after failures: executors on {' '.join(executors.excluded)}")
    if (look_up("spark.dynamicAllocation.enabled", "false") or "").lower() == "true" and look_up(_MOST, None):
        words.append(f"dynamic allocation stops at {_MOST}={look_up(_MOST, None)}")
    return words + [f"{key}={value}" for key in _BOUNDS if (value := look_up(key, None))]
