"""Callbacks for what the agent says while the user's code is elsewhere.

They run at once, in a thread of their own, and should be short: set an event, abort a communicator. What they
raise is logged. Elastic training needs none of them, since it sees the same at its next commit or collective.
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
    """Whether a host of the job may go away soon: its cloud recommends to move, or it is told to go. The same in all workers.

    A collective of a byte: all workers call it at the same step. For scripts that do not commit at each step:

        if step % 100 == 0 or notifications.at_risk():
            state.commit()

    Raises:
        NotInitialized: before ``init()``.
        WorkersFailed: the round is over.
    """
    work = lifecycle.lane("at_risk").allgather_bytes(bytes([_native.host_at_risk()]), "at_risk")
    work.wait()
    return any(any(answer) for answer in cast("list[bytes]", work.result()))


def on_abort(callback: Callable[[int], object]) -> Callable[[], None]:
    """Has ``callback(round)`` called when a round of this process is aborted because a worker failed.

    Returns:
        A function that takes the callback out again.
    """
    _abort.watch(callback)
    return lambda: _abort.unwatch(callback)


def on_hosts_updated(callback: Callable[[int], object]) -> Callable[[], None]:
    """Has ``callback(round)`` called when the hosts of the job change: that round ends at one of the next commits or checks.

    Returns:
        A function that takes the callback out again.
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
