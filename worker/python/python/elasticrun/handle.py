"""Handles of asynchronous collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _repeated_failure
from .errors import ElasticrunError

if TYPE_CHECKING:
    from ._native import Work

__all__ = ["Handle", "poll", "synchronize"]

R = TypeVar("R")
T = TypeVar("T")


class Handle(Generic[R]):
    """A running collective. Do not use its arrays until it is done."""

    __slots__ = ("_result", "_works")

    def __init__(self, works: Sequence[Work], result: Callable[[], R]) -> None:
        self._works = works
        self._result = result

    def poll(self) -> bool:
        """Whether it is done, successfully or not, so that :meth:`wait` would not block."""
        return all(work.poll() for work in self._works)

    def wait(self, timeout: float | None = None) -> R:
        """Waits until it is done, and returns its result. Other threads run meanwhile, and Ctrl-C interrupts the wait.

        A warning each minute in the log ``elasticrun`` names the late ranks.

        Args:
            timeout: seconds.

        Raises:
            WorkersFailed: a worker of the round failed.
            CollectiveMismatch: a rank called a different collective.
            CollectiveTimeout: see :func:`~elasticrun.set_collective_timeout`.
            TimeoutError: it is not done after ``timeout``. It continues, and can be waited for again.
        """
        try:
            for work in self._works:
                work.wait(timeout)
        except ElasticrunError as error:
            _repeated_failure.note(error)
            raise
        return self._result()

    def then(self, change: Callable[[R], T]) -> Handle[T]:
        """A handle of the same collective whose result is ``change(result)``."""
        return Handle(self._works, lambda: change(self._result()))


def poll(handle: Handle[Any]) -> bool:
    """Whether the collective of ``handle`` is done."""
    return handle.poll()


def synchronize(handle: Handle[R]) -> R:
    """Waits for the collective of ``handle``, and returns its result. See :meth:`Handle.wait`."""
    return handle.wait()
