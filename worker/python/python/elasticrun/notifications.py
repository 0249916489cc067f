"""Callbacks for events that the agent reports while user code runs.

Callbacks run immediately, on a separate thread, and should be short: set an event, abort a communicator. Exceptions of
callbacks are logged. Elastic training needs no callbacks, since its next commit or collective reports the same event.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import cast

from . import _abort, _native, lifecycle

__all__ = ["at_risk", "on_abort", "on_hosts_updated"]

_log = logging.getLogger("elasticrun")
_lock = threading.Lock()
_updates: list[Callable[[int], object]] = []


def at_risk() -> bool:
    """Whether a host of the job may go away soon, by a termination notice or a rebalance recommendation. The same in all workers.

    A collective of one byte: all workers call it at the same step. Use it in scripts that do not commit at each step:

        if step % 100 == 0 or notifications.at_risk():
            state.commit()

    Raises:
        NotInitialized: before ``init()``.
        WorkersFailed: the round is over.
    """
    work = lifecycle.collective_queue("at_risk").allgather_bytes(bytes([_native.host_at_risk()]), "at_risk")
    work.wait()
    return any(any(answer) for answer in cast("list[bytes]", work.result()))


def on_abort(callback: Callable[[int], object]) -> Callable[[], None]:
    """Has ``callback(round)`` called when a round of this process is aborted because a worker failed.

    Returns:
        A function that removes the callback.
    """
    _abort.watch(callback)
    return lambda: _abort.unwatch(callback)


def on_hosts_updated(callback: Callable[[int], object]) -> Callable[[], None]:
    """Has ``callback(round)`` called when the hosts of the job change: that round ends at one of the next commits or checks.

    Returns:
        A function that removes the callback.
    """
    with _lock:
        _updates.append(callback)
    _native.on_hosts_updated(_updated)

    def remove() -> None:
        with _lock:
            if callback in _updates:
                _updates.remove(callback)

    return remove


def _updated(round: int) -> None:
    with _lock:
        callbacks = list(_updates)
    for callback in callbacks:
        try:
            callback(round)
        except Exception:
            _log.exception("a callback for updated hosts failed")
