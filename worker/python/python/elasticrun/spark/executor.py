"""The executor above a task, as far as the task's Python can see it.

Spark tells a Python worker neither the host of its executor nor its process. Both are in the process table: the
executor is the first JVM above the worker, and its arguments are the same on all cluster managers.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Executor"]

#: How far up the executor is looked for: worker, daemon, executor; a shell between them on some managers.
_GENERATIONS = 4


@dataclass(frozen=True)
class Executor:
    """What was found above this process.

    Attributes:
        host: its host as Spark names it; the socket's peer and the name of the machine may be other ones.
        above: numbers of the processes above this one, the nearest first, the executor last.
    """

    host: str
    above: tuple[int, ...]

    @classmethod
    def find(cls) -> Executor:
        """The executor above this process. Without one in sight the host is this machine."""
        above: list[int] = []
        host = None
        pid = os.getppid()
        while pid > 1 and len(above) < _GENERATIONS:
            above.append(pid)
            name, parent = _look(pid)
            if name == "java":
                host = _argument(pid, "--hostname")
                break
            pid = parent
        return cls(host or socket.gethostname(), tuple(above))


def _look(pid: int) -> tuple[str, int]:
    """Name and parent of a process; of one that is gone, nothing."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "", 0
    # The name may hold blanks and brackets; what follows the last bracket does not.
    name, _, rest = stat.partition("(")[2].rpartition(")")
    return name, int(rest.split()[1])


def _argument(pid: int, flag: str) -> str | None:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    return words[words.index(flag) + 1] if flag in words[:-1] else None
