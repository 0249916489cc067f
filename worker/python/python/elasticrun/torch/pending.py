"""An operation under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Part(Protocol):
    """A piece of an operation: ``elasticrun._native.Work``, or what stands for one."""

    def wait(self, timeout: float | None = None) -> None: ...
    def poll(self) -> bool: ...
    def then(self, callback: Callable[[Exception | None], None]) -> None: ...


class Pending:
    """Pieces that run in order, and what is left to do with their results.

    ``finish`` runs once, in the first thread that learns that all pieces are done. ``keep`` is anything
    that must live until then.
    """

    __slots__ = ("_finish", "_keep", "_lock", "parts")

    def __init__(self, parts: Sequence[Part], finish: Callable[[], None] | None = None, keep: Any = None) -> None:
        self.parts = list(parts)
        self._finish = finish
        self._keep = keep
        self._lock = threading.Lock()

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until all is done, at most ``timeout`` seconds for each piece.

        Raises:
            WorkersFailed: the round is over.
            CollectiveMismatch: ranks called different things.
            CollectiveTimeout: somebody did not come in time.
        """
        for part in self.parts:
            part.wait(timeout)
        self._complete()

    def done(self) -> bool:
        """Whether :meth:`wait` would return (or raise) at once."""
        return all(part.poll() for part in self.parts)

    def then(self, callback: Callable[[Exception | None], None]) -> None:
        """Calls ``callback`` with the error, or None, once all is done; perhaps from another thread."""

        def ended(error: Exception | None) -> None:
            if error is None:
                try:
                    # What the last piece says is not what the ones before say; they are done as well.
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


def joined(pending: Sequence[Pending]) -> Pending:
    """One operation of several."""
    if len(pending) == 1:
        return pending[0]

    def finish() -> None:
        for one in pending:
            one.wait()

    return Pending([part for one in pending for part in one.parts], finish)


def after(pending: Pending, finish: Callable[[], None]) -> Pending:
    """The operation, and ``finish`` after it."""

    def both() -> None:
        pending.wait()
        finish()

    return Pending(pending.parts, both)
