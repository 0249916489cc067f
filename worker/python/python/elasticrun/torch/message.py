"""One send or recv of gloo, from the call to its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from elasticrun import errors

from .failures import judge

#: Starts the operation in a group of gloo; gives gloo's own handle.
Start = Callable[[Any], Any]


class Message:
    """A part of a :class:`.pending.Pending` that may be asked for before its group is there.

    gloo's own handles of messages can be waited for, once; they know no callbacks, and not whether they are done.
    So who asks for that has a thread wait.

    Args:
        start: starts it.
        what: what to call it in an error.
    """

    def __init__(self, start: Start, what: str) -> None:
        self._start = start
        self._what = what
        self._begun = threading.Event()
        self._ended = threading.Event()
        #: Who has it waits for gloo, or looks at what came of it.
        self._turn = threading.Lock()
        self._work: Any = None
        self._error: Exception | None = None
        self._watched: Future[None] | None = None
        self._watching = threading.Lock()

    def begin(self, group: Any) -> None:
        """Starts it in ``group``."""
        try:
            self._work = self._start(group)
        except Exception as error:
            self._error = error
        self._begun.set()

    def fail(self, error: Exception) -> None:
        """Ends it: there is no group."""
        self._error = error
        self._begun.set()

    @property
    def source(self) -> int:
        """The rank that sent what was received."""
        return int(self._work._source_rank())

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until it is done. A timeout once the two are connected is the end of that connection: gloo breaks it.

        Raises:
            WorkersFailed: the round is over.
            CollectiveTimeout: the other rank did not come in ``timeout`` seconds.
        """
        until = None if timeout is None else time.monotonic() + timeout
        if not self._begun.wait(timeout):
            raise self._late()
        left = _left(until)
        if not self._turn.acquire(timeout=-1 if left is None else left):
            raise self._late()
        try:
            if not self._ended.is_set():
                self._finish(_left(until))
        finally:
            self._turn.release()
        if self._error is not None:
            raise self._error

    def poll(self) -> bool:
        """Whether :meth:`wait` would return (or raise) at once."""
        return self._ended.is_set() or self._watch().done()

    def then(self, callback: Callable[[Exception | None], None]) -> None:
        """Calls ``callback`` with the error, or None, once it is done; perhaps from another thread."""

        def told(outcome: Future[None]) -> None:
            error = outcome.exception()
            callback(error if isinstance(error, Exception) else None)

        self._watch().add_done_callback(told)

    def _watch(self) -> Future[None]:
        """The outcome, which a thread waits for."""
        with self._watching:
            if self._watched is None:
                self._watched = Future()
                threading.Thread(target=self._wait_for_others, name=f"elasticrun {self._what}", daemon=True).start()
            return self._watched

    def _wait_for_others(self) -> None:
        assert self._watched is not None
        try:
            self.wait()
        except Exception as error:
            self._watched.set_exception(error)
        else:
            self._watched.set_result(None)

    def _finish(self, left: float | None) -> None:
        """Waits for gloo, at most ``left`` seconds, and keeps the error."""
        if self._error is None:
            try:
                if left is None:
                    self._work.wait()
                else:
                    self._work.wait(timedelta(seconds=left))
            except Exception as error:
                self._error = error
        if self._error is not None:
            self._error = self._late() if _timed_out(self._error) else judge(self._error)
        self._ended.set()

    def _late(self) -> errors.CollectiveTimeout:
        return errors.CollectiveTimeout(
            f"{self._what}: the other rank did not come in time: see whether it makes the call that goes with "
            "this one, with the same tag"
        )


def _left(until: float | None) -> float | None:
    return None if until is None else max(until - time.monotonic(), 0.0)


def _timed_out(error: Exception) -> bool:
    return isinstance(error, RuntimeError) and "Timed out waiting" in str(error)
