"""A running operation of one or more parts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Part(Protocol):
    """A part of an operation: ``elasticrun._native.Work``, or an object with the same methods."""

    def wait(self, timeout: float | None = None) -> None: ...
    def poll(self) -> bool: ...
    def then(self, callback: Callable[[Exception | None], None]) -> None: ...


class Inflight:
    """Parts that run in order, and a function that processes their results.

    ``finish`` runs once, in the first thread that observes that all parts are done. ``keep`` is an object that must live
    until then.
    """

    __slots__ = ("_finish", "_keep", "_lock", "parts")

    def __init__(self, parts: Sequence[Part], finish: Callable[[], None] | None = None, keep: Any = None) -> None:
        self.parts = list(parts)
        self._finish = finish
        self._keep = keep
        self._lock = threading.Lock()

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until all parts are done, at most ``timeout`` seconds for each part.

        Raises:
            WorkersFailed: the round is over.
            CollectiveMismatch: ranks made different calls.
            CollectiveTimeout: a rank did not join in time.
        """
        for part in self.parts:
            part.wait(timeout)
        self._complete()

    def done(self) -> bool:
        """Whether :meth:`wait` would return (or raise) at once."""
        return all(part.poll() for part in self.parts)

    def then(self, callback: Callable[[Exception | None], None]) -> None:
        """Calls ``callback`` with the error, or None, once all parts are done, possibly on another thread."""

        def ended(error: Exception | None) -> None:
            if error is None:
                try:
                    # All parts are done. Earlier parts may have failed although the last one has not.
                    self.wait()
                except Exception as raised:
                    error = raised
            callback(error)

        if self.parts:
            self.parts[-1].then(ended)
        else:
            ended(None)

    def _complete(self) -> None:
        with self._lock:
            finish, self._finish = self._finish, None
            if finish is not None:
                finish()
            self._keep = None


def joined(pending: Sequence[Inflight]) -> Inflight:
    """Combines several operations into one."""
    if len(pending) == 1:
        return pending[0]

    def finish() -> None:
        for operation in pending:
            operation.wait()

    return Inflight([part for operation in pending for part in operation.parts], finish)


def after(pending: Inflight, finish: Callable[[], None]) -> Inflight:
    """The operation, followed by ``finish``."""

    def both() -> None:
        pending.wait()
        finish()

    return Inflight(pending.parts, both)
