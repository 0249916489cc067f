"""Handles of requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from .._native import PsRequest

__all__ = ["Handle"]

R = TypeVar("R")


class Handle(Generic[R]):
    """A request in flight. Dropping it forgets the result, not the request."""

    __slots__ = ("_native", "_result")

    def __init__(self, native: PsRequest, result: Callable[[], R]) -> None:
        self._native = native
        self._result = result

    def __repr__(self) -> str:
        return f"<elasticrun.ps.Handle {self.timestamp}>"

    @property
    def timestamp(self) -> int:
        """The number of the request at its customer, from 0."""
        return self._native.timestamp

    def poll(self) -> bool:
        """Whether it is completed, with an error or not, so that :meth:`wait` would not block."""
        return self._native.poll()

    def wait(self, timeout: float | None = None) -> R:
        """Waits until all servers have answered, and returns the result. Other threads run meanwhile, and Ctrl-C interrupts
        the wait.

        Do not call it in a callback or handler: the thread that would read the answer waits there.

        Args:
            timeout: seconds; the request timeout by default (``ELASTICRUN_PS_REQUEST_TIMEOUT``, 60 s).

        Raises:
            PsTimeout: it is not completed in time. It is over then.
            PsNodeLost: a server is dead.
            PsRefused: a server refused it, or its handler raised an exception.
        """
        self._native.wait(timeout)
        return self._result()
