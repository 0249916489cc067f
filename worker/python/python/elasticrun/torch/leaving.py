"""Before the interpreter ends: gloo's threads are done with their tensors.

A thread of gloo says that an operation is done, and then gives its tensors back, for which it needs the
interpreter. If that has begun to end meanwhile, the thread is ended in a place where C++ allows no end: the process
aborts ("terminate called without an active exception"), and a worker that had done its work is a failed one. This
is so without elasticrun, too. So who leaves waits a moment, until the threads have nothing left to do.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

#: What gloo's groups call the threads of their operations.
_NAME = "pt_gloo_runloop"
#: Longest wait in seconds. A thread sleeps when it is done, and also while it waits for a peer that never comes.
_PATIENCE = 1.0
#: Seconds between two looks, in which a thread can have the interpreter.
_PAUSE = 0.001


def settle() -> None:
    """Returns when all threads of gloo slept at two looks in a row, after a second at the latest."""
    until = time.monotonic() + _PATIENCE
    quiet = 0
    while quiet < 2 and time.monotonic() < until:
        states = list(_states())
        if not states:
            return
        quiet = quiet + 1 if set(states) == {"S"} else 0
        time.sleep(_PAUSE)


def _states() -> Iterator[str]:
    """What the kernel says of each thread of gloo in this process: S sleeps."""
    for thread in os.listdir("/proc/self/task"):
        # It may end meanwhile.
        with contextlib.suppress(OSError):
            with open(f"/proc/self/task/{thread}/stat") as stat:
                _, _, rest = stat.read().partition("(")
            name, _, fields = rest.rpartition(")")
            if name == _NAME:
                yield fields.split()[0]
