"""Waits before the interpreter exits until gloo's threads have released their tensors.

A gloo thread reports that an operation is done before it releases the tensors, for which it needs the interpreter. If the
interpreter is exiting by then, the thread is terminated where C++ does not allow it. The process aborts ("terminate called
without an active exception"), so that a worker that was done counts as failed. This also happens without elasticrun. An
exiting process therefore waits briefly until the threads are idle.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

#: Name of the threads that run the operations of gloo's groups.
_NAME = "pt_gloo_runloop"
#: Maximum wait in seconds. A thread sleeps when it is idle, and also while it waits for a peer that never comes.
_TIMEOUT = 1.0
#: Seconds between two checks, during which threads can take the interpreter lock.
_PAUSE = 0.001


def wait_for_threads() -> None:
    """Returns when all gloo threads were asleep in two consecutive checks, after a second at the latest."""
    deadline = time.monotonic() + _TIMEOUT
    idle_checks = 0
    while idle_checks < 2 and time.monotonic() < deadline:
        states = list(_states())
        if not states:
            return
        idle_checks = idle_checks + 1 if set(states) == {"S"} else 0
        time.sleep(_PAUSE)


def _states() -> Iterator[str]:
    """The kernel's state letter of each gloo thread in this process. S is asleep."""
    for thread in os.listdir("/proc/self/task"):
        # The thread may exit meanwhile.
        with contextlib.suppress(OSError):
            with open(f"/proc/self/task/{thread}/stat") as stat:
                _, _, rest = stat.read().partition("(")
            name, _, fields = rest.rpartition(")")
            if name == _NAME:
                yield fields.split()[0]
