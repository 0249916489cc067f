"""Handles of collectives that were started and not waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from ._native import Work

__all__ = ["Handle", "poll", "synchronize"]

R = TypeVar("R")
T = TypeVar("T")


class Handle(Generic[R]):
    """A collective that runs. Leave its arrays alone until it is done."""

    __slots__ = ("_result", "_works")

    def __init__(self, works: Sequence[Work], result: Callable[[], R]) -> None:
        self._works = works
        self._result = result

    def poll(self) -> bool:
        """Whether it is done, well or not: whether :meth:`wait` would not block."""
        return all(work.poll() for work in self._works)

    def wait(self, timeout: float | None = None) -> R:
        """Waits until it is done, and gives its result. Other threads run meanwhile, and Ctrl-C works.

        After each minute a warning in the log of ``elasticrun`` names the ranks that are late.

        Args:
            timeout: seconds.

        Raises:
            WorkersFailed: a worker of the round failed.
            CollectiveMismatch: a rank called something else.
            CollectiveTimeout: see :func:`~elasticrun.set_collective_timeout`.
            TimeoutError: it is not done after ``timeout``; it goes on, and can be waited for again.
        """
        for work in self._works:
            work.wait(timeout)
        return self._result()

    def then(self, change: Callable[[R], T]) -> Handle[T]:
        """The same collective, with ``change(result)`` for its result."""
        return Handle(self._works, lambda: change(self._result()))


def poll(handle: Handle[Any]) -> bool:
    """Whether the collective of ``handle`` is done."""
    return handle.poll()


def synchronize(handle: Handle[R]) -> R:
    """Waits for the collective of ``handle``, and gives its result. See :meth:`Handle.wait`."""
    return handle.wait()
