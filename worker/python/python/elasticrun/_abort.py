"""Callbacks for aborted rounds of this process. The native side takes one callback; this module calls all of them."""

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
    """Calls ``callback(round)`` on a separate thread when a round is aborted. Exceptions of it are logged."""
    with _lock:
        _watchers.append(callback)
    _native.on_abort(_aborted)


def unwatch(callback: Callable[[int], object]) -> None:
    """Removes ``callback``. Does nothing if it is not registered."""
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
