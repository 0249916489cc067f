"""Drains executors that Spark decommissions.

Spark does not notify the tasks of a decommissioned executor; it waits until they end, but the task of a slot does not end by
itself. This module therefore polls the scheduler for the state of each executor that holds a slot, and drains the slot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .driver_process import DriverProcess
from .error_text import error_text
from .listener import Listener
from .poller import Poller
from .slots import Slots

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Decommission"]

#: Seconds between two polls. A decommissioned executor stays at least until its blocks are migrated.
_INTERVAL = 0.5


class Decommission(Poller):
    """Polls the scheduler until it is stopped.

    Args:
        context: context of the executors.
        listener: provides the slots that executors hold.
        slots: maps job groups to slots.
        driver: driver of the job.
        report: prints a line for the user if the poll fails.
    """

    def __init__(
        self,
        context: SparkContext,
        listener: Listener,
        slots: Slots,
        driver: DriverProcess,
        report: Callable[[str], None],
    ) -> None:
        self._context = context
        self._listener = listener
        self._slots = slots
        self._driver = driver
        self._report = report
        self._drained: set[int] = set()
        self._last_error: str | None = None
        super().__init__("decommission", _INTERVAL)

    def poll(self) -> float:
        """Queries the state of each executor that holds a slot."""
        from py4j.protocol import Py4JNetworkError

        try:
            self._query()
        except (Py4JNetworkError, OSError):
            # No answer. If the JVM is gone, the watchdog ends the job.
            pass
        except Exception as error:  # The job continues without this; the user gets a line
            self._report_error(error_text(error))
        return _INTERVAL

    def _report_error(self, why: str) -> None:
        # A stopped context has no scheduler. The watchdog handles that case.
        if self._context._jsc is not None and why != self._last_error:
            self._last_error = why
            self._report(f"cannot ask Spark which executors it decommissions: {why}")

    def _query(self) -> None:
        scheduler = self._context._jsc.sc().taskScheduler()
        for held in self._listener.held():
            slot = self._slots.slot_of_group(held.group)
            if held.attempt in self._drained or slot is None:
                continue
            if scheduler.getExecutorDecommissionState(held.executor).isDefined():
                host = f"{held.machine}/{slot}.{held.attempt}"
                # The driver refuses a host that has not registered yet; the next poll tries again.
                if self._driver.drain(host):
                    self._drained.add(held.attempt)
                    self._slots.replace(slot)
