"""Sees when Spark's JVM is gone. Python itself would notice at its next call only, which may never come."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Watchdog"]

#: Seconds between two looks.
_INTERVAL = 0.5


class Watchdog:
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
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="elasticrun-watchdog", daemon=True)
        self.gone: str | None = None

    def start(self) -> None:
        """Begins to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watches no more."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL):
            self.gone = self._look()
            if self.gone:
                self._end()
                return

    def _look(self) -> str | None:
        if self._jvm is not None:
            if self._jvm.poll() is not None:
                return "Spark's JVM has ended"
        elif os.getppid() != self._parent:
            return "the process that started this one (Spark's JVM) has ended"
        # Set by SparkContext.stop().
        return "the SparkContext was stopped" if self._context._jsc is None else None
