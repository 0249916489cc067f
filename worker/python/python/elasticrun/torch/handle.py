"""Handles of operations that were started and not waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elasticrun import errors

from .announce import Announcement
from .pending import Pending


class Handle:
    """What the ``..._async`` functions return; for :func:`poll` and :func:`synchronize`."""

    __slots__ = ("_announcement", "_pending", "_result")

    def __init__(
        self, pending: Pending, announcement: Announcement | None, result: Callable[[], Any]
    ) -> None:
        self._pending = pending
        self._announcement = announcement
        self._result = result

    def done(self) -> bool:
        """Whether :meth:`wait` would return or raise at once."""
        return self._pending.done() and (self._announcement is None or self._announcement.done())

    def wait(self) -> Any:
        """Blocks until the operation is done, and gives its result."""
        try:
            self._pending.wait()
        except errors.ElasticrunError as error:
            if self._announcement is not None:
                self._announcement.explain(error)
            raise
        if self._announcement is not None:
            self._announcement.check()
        return self._result()


def poll(handle: Handle) -> bool:
    """Whether the operation of ``handle`` is done, so that :func:`synchronize` does not block."""
    return handle.done()


def synchronize(handle: Handle) -> Any:
    """Waits for the operation of ``handle`` and gives its result.

    Raises:
        WorkersFailed: the round is over.
        CollectiveMismatch: ranks called different things; rank and tensor are named.
    """
    return handle.wait()
