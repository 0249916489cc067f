"""The SparkContext of a job: its selection, its settings, and warnings about settings that disturb the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import ElasticrunError
from .counts import Counts, Setting

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["active", "setting", "warn_of_settings"]


def active(given: SparkContext | None) -> SparkContext:
    """The context to use: ``given``, or the active one.

    Raises:
        ElasticrunError: there is no context, it was stopped, or Python threads share one JVM thread.
    """
    import os

    from pyspark import SparkContext

    context = given if given is not None else SparkContext._active_spark_context
    if context is None:
        raise ElasticrunError("there is no active SparkContext: make one, or pass spark_context")
    if context._jsc is None or context._jsc.sc().isStopped():
        raise ElasticrunError("the SparkContext was stopped: make another one")
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        raise ElasticrunError(
            "PYSPARK_PIN_THREAD is false: expected true, its default, so that each slot has a job group"
        )
    return context


def setting(context: SparkContext) -> Setting:
    """A function that looks up keys of the context's configuration."""
    configuration = context.getConf()

    def look_up(key: str, otherwise: str | None) -> str | None:
        value: str | None = configuration.get(key, otherwise)
        return value

    return look_up


def warn_of_settings(context: SparkContext, counts: Counts, report: Callable[[str], None]) -> None:
    """Warns of Spark settings that disturb a job that holds its slots for long."""
    look_up = setting(context)
    for key, why in (
        ("spark.excludeOnFailure.enabled", "Spark may refuse executors that lost a task"),
        ("spark.speculation", "Spark may start a slot twice; the newer one is used"),
    ):
        if (look_up(key, "false") or "").lower() == "true":
            report(f"warning: {key} is on: {why}; it is better off for such a program")
    dynamic = (look_up("spark.dynamicAllocation.enabled", "false") or "").lower() == "true"
    max_executors = look_up("spark.dynamicAllocation.maxExecutors", None) or ""
    cores = int(look_up("spark.executor.cores", "0") or 0) // int(look_up("spark.task.cpus", "1") or 1)
    if dynamic and max_executors.isdigit() and 0 < int(max_executors) * max(cores, 1) < counts.max_num_proc:
        report(
            f"warning: spark.dynamicAllocation.maxExecutors is {max_executors}: {int(max_executors) * max(cores, 1)} of the"
            f" {counts.max_num_proc} slots of max_num_proc can be granted"
        )
