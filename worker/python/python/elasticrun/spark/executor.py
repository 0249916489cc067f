"""Finds the executor process of a task.

Spark passes neither the host of the executor nor its pid to a Python worker. The process table contains both: the executor is
the first JVM among the ancestors of the worker, and its arguments are the same on all cluster managers.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Executor"]

#: Number of ancestors to search: worker, daemon, executor; some cluster managers add a shell.
_GENERATIONS = 4


@dataclass(frozen=True)
class Executor:
    """The executor and the other ancestors of this process.

    Attributes:
        host: host of the executor as Spark names it, which may differ from the socket's peer and the machine's name.
        ancestors: pids of the ancestors, from the parent to the executor.
    """

    host: str
    ancestors: tuple[int, ...]

    @classmethod
    def find(cls) -> Executor:
        """Searches the ancestors of this process. If none is an executor, the host is this machine."""
        ancestors: list[int] = []
        host = None
        pid = os.getppid()
        while pid > 1 and len(ancestors) < _GENERATIONS:
            ancestors.append(pid)
            name, parent = _look(pid)
            if name == "java":
                host = _argument(pid, "--hostname")
                break
            pid = parent
        return cls(host or socket.gethostname(), tuple(ancestors))


def _look(pid: int) -> tuple[str, int]:
    """Name and parent of a process; empty and 0 if it has exited."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "", 0
    # The name may contain blanks and brackets; the fields after the last bracket do not.
    name, _, rest = stat.partition("(")[2].rpartition(")")
    return name, int(rest.split()[1])


def _argument(pid: int, flag: str) -> str | None:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    return words[words.index(flag) + 1] if flag in words[:-1] else None
