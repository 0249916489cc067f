"""Code of workers that learns of an event while the training thread is elsewhere."""

from __future__ import annotations

#: `over` is set once the round is aborted.
WATCH_ABORT = """
import threading
from elasticrun import _abort
over = threading.Event()
_abort.watch(lambda round: over.set())

"""

#: `held` is set once the job asks for the common boundary of the round.
WATCH_HOLD = """
import threading
held = threading.Event()
e.notifications.on_hosts_updated(lambda round: held.set())
"""
