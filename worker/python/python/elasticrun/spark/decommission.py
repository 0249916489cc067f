"""Leaves executors that Spark decommissions, at a common commit of the job.

Spark tells a decommissioned executor's tasks nothing; it lets them run to their end, which a slot has not. So the
scheduler is asked about each executor that holds a slot, and the job is told to leave it: a drain, and no failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .beside import Beside
from .child import Driver
from .listener import Listener
from .reason import reason
from .slots import Slots

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Decommission"]

#: Seconds between two questions. Executors have at least as long as their blocks take to move.
_INTERVAL = 0.5


class Decommission(Beside):
    """Asks until it is stopped.

    Args:
        context: whose executors they are.
        listener: knows who holds which slot.
        slots: knows the slots by their groups.
        driver: of the job.
        say: gets a line for a person when Spark does not answer the question.
    """

    def __init__(
        self, context: SparkContext, listener: Listener, slots: Slots, driver: Driver, say: Callable[[str], None]
    ) -> None:
        self._context = context
        self._listener = listener
        self._slots = slots
        self._driver = driver
        self._say = say
        self._left: set[int] = set()
        self._said: str | None = None
        super().__init__("decommission", _INTERVAL)

    def look(self) -> float:
        """Asks about each executor that holds a slot."""
        from py4j.protocol import Py4JNetworkError

        try:
            self._ask()
        except (Py4JNetworkError, OSError):
            # Nobody answers. If the JVM is gone the watchdog ends the job.
            pass
        except Exception as error:  # A job goes on without this, and a person hears of it
            self._complain(reason(error))
        return _INTERVAL

    def _complain(self, why: str) -> None:
        # A context that was stopped has no scheduler: the watchdog's, too.
        if self._context._jsc is not None and why != self._said:
            self._said = why
            self._say(f"cannot ask Spark which executors it decommissions: {why}")

    def _ask(self) -> None:
        scheduler = self._context._jsc.sc().taskScheduler()
        for held in self._listener.held():
            slot = self._slots.of_group(held.group)
            if held.attempt in self._left or slot is None:
                continue
            if scheduler.getExecutorDecommissionState(held.executor).isDefined():
                host = f"{held.machine}/{slot}.{held.attempt}"
                # A host that has not registered yet is asked about again.
                if self._driver.drain(host):
                    self._left.add(held.attempt)
                    self._slots.replace(slot)
