"""Sees when Spark's JVM is gone. Python itself would notice at its next call only, which may never come."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .beside import Beside

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Watchdog"]

#: Seconds between two looks.
_INTERVAL = 0.5


class Watchdog(Beside):
    """Calls ``end`` once the JVM of a context is gone or the context was stopped.

    Attributes:
        gone: what is gone, if anything is.
    """

    def __init__(self, context: SparkContext, end: Callable[[], object]) -> None:
        self._context = context
        self._end = end
        # Started by pyspark; with spark-submit there is none, and the JVM is our parent.
        self._jvm: Any = getattr(context._gateway, "proc", None)
        self._parent = os.getppid()
        self.gone: str | None = None
        super().__init__("watchdog", _INTERVAL)

    def look(self) -> float | None:
        """Ends the job if something is gone."""
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
