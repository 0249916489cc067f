"""What a task of Spark does on its executor: it holds a task service, and ends with it.

Only what can be pickled by name is here; the task finds this module in the package of the executor.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .delivery import Delivered
from .executor import Executor

if TYPE_CHECKING:
    from pyspark import TaskContext

__all__ = ["Order", "Outcome", "serve"]

#: Lines at the end of a service's stderr that its outcome keeps.
_LAST_LINES = 5


@dataclass(frozen=True)
class Order:
    """What a task needs to know. It travels in the closure of the task; the secret is not shown.

    Attributes:
        driver: addresses of the job's driver, ``host:port``.
        secret: the job's, in hexadecimal digits.
        slot: which task of the job.
        delivered: the program, if Spark brings it; else it is the one of the executor's package.
    """

    driver: tuple[str, ...]
    secret: str = field(repr=False)
    slot: int
    delivered: Delivered | None = None


@dataclass(frozen=True)
class Outcome:
    """How a task service ended: its exit code (negative: a signal) and its last words."""

    code: int
    words: str


def serve(order: Order, _rows: Iterable[object]) -> Iterator[Outcome]:
    """Runs a task service until it ends."""
    from .. import _binary

    binary = order.delivered.find() if order.delivered else os.fspath(_binary.find())
    # By the main thread: the service ends with the thread that started it.
    try:
        service = subprocess.Popen(
            [binary, "task-service"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,
        )
    except OSError as error:
        advice = " (is its directory mounted noexec?)" if isinstance(error, PermissionError) else ""
        raise RuntimeError(
            f"elasticrun: {binary} cannot be run on {socket.gethostname()}: {error.strerror}{advice}"
        ) from error
    assert service.stdin is not None and service.stderr is not None, "they are pipes"
    try:
        service.stdin.write(json.dumps(_settings(order)).encode() + b"\n")
        service.stdin.flush()
        # The pipe stays open: its end would be the end of the service.
        last: list[str] = []
        for line in service.stderr:
            text = line.decode(errors="replace")
            sys.stderr.write(text)
            sys.stderr.flush()
            last = [*last[1 - _LAST_LINES :], text.rstrip("\n")]
        code = service.wait()
    finally:
        # Nothing to do if it has ended; else this task is being interrupted.
        service.kill()
    yield Outcome(code, "\n".join(last))


def _settings(order: Order) -> dict[str, object]:
    executor = Executor.find()
    task = {"machine": executor.host, "slot": order.slot, "attempt": _context().taskAttemptId()}
    return {
        "driver": list(order.driver),
        "secret": order.secret,
        "task": task,
        "above": executor.above,
    }


def _environment() -> dict[str, str]:
    """Variables of the service, and so of its workers."""
    # A worker finds what a task finds: the packages of this Python and the files that Spark delivered.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    programs = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    variables = {
        **os.environ,
        "PYTHONPATH": path,
        "PATH": programs,
        "ELASTICRUN_PYTHON": sys.executable,
    }
    gpus = _context().resources().get("gpu")
    if gpus is not None:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpus.addresses)
    return variables


def _context() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "a task of Spark"
    return context
