"""Detects the end of Spark's JVM. Python itself would detect it only at its next call, which may never happen."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .poller import Poller

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Watchdog"]

#: Seconds between two polls.
_INTERVAL = 0.5


class Watchdog(Poller):
    """Calls ``end`` once the JVM of a context is gone or the context was stopped.

    Attributes:
        gone: description of what has ended, if anything.
    """

    def __init__(self, context: SparkContext, end: Callable[[], object]) -> None:
        self._context = context
        self._end = end
        # The JVM that pyspark started. With spark-submit there is none, and the JVM is the parent of this process.
        self._jvm: Any = getattr(context._gateway, "proc", None)
        self._parent = os.getppid()
        self.gone: str | None = None
        super().__init__("watchdog", _INTERVAL)

    def poll(self) -> float | None:
        """Ends the job if the JVM or the context has ended."""
        self.gone = self._missing()
        if self.gone is None:
            return _INTERVAL
        self._end()
        return None

    def _missing(self) -> str | None:
        if self._jvm is not None:
            if self._jvm.poll() is not None:
                return "Spark's JVM has ended"
        elif os.getppid() != self._parent:
            return "the process that started this one (Spark's JVM) has ended"
        # Set by SparkContext.stop().
        return "the SparkContext was stopped" if self._context._jsc is None else None
