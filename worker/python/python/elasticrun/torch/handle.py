"""Handles of asynchronous operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from elasticrun import _repeated_failure, errors

from .inflight import Inflight
from .mismatch_check import Announcement

R = TypeVar("R")
T = TypeVar("T")


class Handle(Generic[R]):
    """The result of ``..._async`` functions, for :func:`poll` and :func:`synchronize`."""

    __slots__ = ("_announcement", "_pending", "_result")

    def __init__(self, pending: Inflight, announcement: Announcement | None, result: Callable[[], R]) -> None:
        self._pending = pending
        self._announcement = announcement
        self._result = result

    def done(self) -> bool:
        """Whether :meth:`wait` would return or raise at once."""
        return self._pending.done() and (self._announcement is None or self._announcement.done())

    def wait(self) -> R:
        """Blocks until the operation is done, and returns its result."""
        try:
            self._pending.wait()
        except errors.ElasticrunError as error:
            if self._announcement is not None:
                self._announcement.explain(error)
            _repeated_failure.note(error)
            raise
        if self._announcement is not None:
            self._announcement.check()
        return self._result()

    def then(self, change: Callable[[R], T]) -> Handle[T]:
        """A handle of the same operation whose result is ``change(result)``."""
        return Handle(self._pending, self._announcement, lambda: change(self._result()))


def poll(handle: Handle[R]) -> bool:
    """Whether the operation of ``handle`` is done, so that :func:`synchronize` does not block."""
    return handle.done()


def synchronize(handle: Handle[R]) -> R:
    """Waits for the operation of ``handle`` and returns its result.

    Raises:
        WorkersFailed: the round is over.
        CollectiveMismatch: ranks made different calls. The message names rank and tensor.
    """
    return handle.wait()
