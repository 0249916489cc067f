"""Callbacks for what the agent says while the user's code is elsewhere.

They run at once, in a thread of their own, and should be short: set an event, abort a communicator. What they
raise is logged. Elastic training needs none of them, since it sees the same at its next commit or collective.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from . import _abort, _native

__all__ = ["on_abort", "on_hosts_updated"]

_log = logging.getLogger("elasticrun")
_lock = threading.Lock()
_updates: list[Callable[[], object]] = []


def on_abort(callback: Callable[[int], object]) -> Callable[[], None]:
    """Has ``callback(round)`` called when a round of this process is aborted because a worker failed.

    Returns:
        A function that takes the callback out again.
    """
    _abort.watch(callback)
    return lambda: _abort.unwatch(callback)


def on_hosts_updated(callback: Callable[[], object]) -> Callable[[], None]:
    """Has ``callback()`` called when the hosts of the job are about to change: the round ends at a commit or check soon.

    Returns:
        A function that takes the callback out again.
    """
    with _lock:
        _updates.append(callback)
    attach = getattr(_native, "on_hosts_updated", None)
    if attach is not None:
        attach(_updated)

    def remove() -> None:
        with _lock:
            if callback in _updates:
                _updates.remove(callback)

    return remove


def _updated(*_: object) -> None:
    with _lock:
        callbacks = list(_updates)
    for callback in callbacks:
        try:
            callback()
        except Exception:
            _log.exception("a callback for updated hosts failed")
