"""Who is called at once when a round of this process is aborted. The native side has room for one function."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from . import _native

__all__ = ["unwatch", "watch"]

_log = logging.getLogger("elasticrun")
_lock = threading.Lock()
_watchers: list[Callable[[int], object]] = []


def watch(callback: Callable[[int], object]) -> None:
    """Has ``callback(round)`` called, on a thread of its own, when a round is aborted. What it raises is logged."""
    with _lock:
        _watchers.append(callback)
    _native.on_abort(_aborted)


def unwatch(callback: Callable[[int], object]) -> None:
    """Has ``callback`` called no more. Does nothing if it is not."""
    with _lock:
        if callback in _watchers:
            _watchers.remove(callback)


def _aborted(round: int) -> None:
    with _lock:
        watchers = list(_watchers)
    for watcher in watchers:
        try:
            watcher(round)
        except Exception:
            _log.exception("a callback for aborted rounds failed")
