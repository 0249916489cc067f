"""A send or recv of gloo, from the call to its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from elasticrun import errors

from .failures import classify

#: Starts the operation in a gloo group, and returns gloo's handle.
Start = Callable[[Any], Any]


class Message:
    """A part of an :class:`.inflight.Inflight` that may be created before its group.

    gloo's handles of messages support only one wait, no callbacks and no polling. :meth:`poll` and :meth:`then` therefore
    start a thread that waits.

    Args:
        start: starts the operation.
        what: description of the operation in errors.
    """

    def __init__(self, start: Start, what: str) -> None:
        self._start = start
        self._what = what
        self._begun = threading.Event()
        self._ended = threading.Event()
        #: Held by the thread that waits for gloo.
        self._wait_lock = threading.Lock()
        self._work: Any = None
        self._error: Exception | None = None
        self._outcome: Future[None] | None = None
        self._outcome_lock = threading.Lock()

    def begin(self, group: Any) -> None:
        """Starts the operation in ``group``."""
        try:
            self._work = self._start(group)
        except Exception as error:
            self._error = error
        self._begun.set()

    def fail(self, error: Exception) -> None:
        """Fails the operation, because there is no group."""
        self._error = error
        self._begun.set()

    @property
    def source(self) -> int:
        """The rank that sent the received message."""
        return int(self._work._source_rank())

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until it is done. After a timeout, gloo breaks the connection if it was established.

        Raises:
            WorkersFailed: the round is over.
            CollectiveTimeout: the other rank did not join within ``timeout`` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._begun.wait(timeout):
            raise self._late()
        left = _left(deadline)
        if not self._wait_lock.acquire(timeout=-1 if left is None else left):
            raise self._late()
        try:
            if not self._ended.is_set():
                self._finish(_left(deadline))
        finally:
            self._wait_lock.release()
        if self._error is not None:
            raise self._error

    def poll(self) -> bool:
        """Whether :meth:`wait` would return (or raise) at once."""
        return self._ended.is_set() or self._watch().done()

    def then(self, callback: Callable[[Exception | None], None]) -> None:
        """Calls ``callback`` with the error, or None, once it is done, possibly on another thread."""

        def done(outcome: Future[None]) -> None:
            error = outcome.exception()
            callback(error if isinstance(error, Exception) else None)

        self._watch().add_done_callback(done)

    def _watch(self) -> Future[None]:
        """A future of the outcome. The first call starts a thread that waits."""
        with self._outcome_lock:
            if self._outcome is None:
                self._outcome = Future()
                threading.Thread(target=self._wait_in_thread, name=f"elasticrun {self._what}", daemon=True).start()
            return self._outcome

    def _wait_in_thread(self) -> None:
        assert self._outcome is not None
        try:
            self.wait()
        except Exception as error:
            self._outcome.set_exception(error)
        else:
            self._outcome.set_result(None)

    def _finish(self, left: float | None) -> None:
        """Waits for gloo, at most ``left`` seconds, and stores the error."""
        if self._error is None:
            try:
                if left is None:
                    self._work.wait()
                else:
                    self._work.wait(timedelta(seconds=left))
            except Exception as error:
                self._error = error
        if self._error is not None:
            self._error = self._late() if _timed_out(self._error) else classify(self._error)
        self._ended.set()

    def _late(self) -> errors.CollectiveTimeout:
        return errors.CollectiveTimeout(
            f"{self._what}: the other rank did not come in time: see whether it makes the call that goes with "
            "this one, with the same tag"
        )


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)


def _timed_out(error: Exception) -> bool:
    return isinstance(error, RuntimeError) and "Timed out waiting" in str(error)
