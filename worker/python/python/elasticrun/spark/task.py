"""The function of a Spark task: it runs a task service on its executor, and ends with it.

The function is pickled by name, so the task imports this module from the package of the executor.
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

from .binary_distribution import DistributedBinary
from .error_text import UnusableExecutorError
from .executor import Executor

if TYPE_CHECKING:
    from pyspark import TaskContext

__all__ = ["Outcome", "TaskSpec", "serve"]

#: Number of lines from the end of a service's stderr that its outcome contains.
_LAST_LINES = 5


@dataclass(frozen=True)
class TaskSpec:
    """The specification of a task, which is sent in the closure of the task. The token is not part of the repr.

    Attributes:
        driver: addresses of the job's driver, ``host:port``.
        token: join token of the job.
        slot: slot number in the job.
        binary: the program, if Spark sends it. None: the program of the executor's package.
    """

    driver: tuple[str, ...]
    token: str = field(repr=False)
    slot: int
    binary: DistributedBinary | None = None


@dataclass(frozen=True)
class Outcome:
    """The end of a task service: its exit code (negative: a signal) and the last lines of its stderr."""

    code: int
    stderr_tail: str


def serve(spec: TaskSpec, _rows: Iterable[object]) -> Iterator[Outcome]:
    """Runs a task service until it ends.

    Raises:
        UnusableExecutorError: the program is missing, or cannot be run.
    """
    from .. import _binary

    try:
        program = spec.binary.find() if spec.binary else os.fspath(_binary.find())
    except FileNotFoundError as error:
        raise UnusableExecutorError(f"{socket.gethostname()}: {error}") from error
    # Runs on the main thread, because the service exits with the thread that started it.
    try:
        service = subprocess.Popen(
            [program, "task-service"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,
        )
    except OSError as error:
        advice = " (is its directory mounted noexec?)" if isinstance(error, PermissionError) else ""
        raise UnusableExecutorError(
            f"{program} cannot be run on {socket.gethostname()}: {error.strerror}{advice}"
        ) from error
    assert service.stdin is not None and service.stderr is not None, "they are pipes"
    try:
        service.stdin.write(json.dumps(_settings(spec)).encode() + b"\n")
        service.stdin.flush()
        # The pipe stays open, because the service exits when it is closed.
        last: list[str] = []
        for line in service.stderr:
            text = line.decode(errors="replace")
            sys.stderr.write(text)
            sys.stderr.flush()
            last = [*last[1 - _LAST_LINES :], text.rstrip("\n")]
        code = service.wait()
    finally:
        # Has no effect on a service that has exited. Otherwise this task was interrupted.
        service.kill()
    yield Outcome(code, "\n".join(last))


def _settings(spec: TaskSpec) -> dict[str, object]:
    executor = Executor.find()
    task = {"machine": executor.host, "slot": spec.slot, "attempt": _context().taskAttemptId()}
    return {
        "driver": list(spec.driver),
        "token": spec.token,
        "task": task,
        "above": executor.ancestors,
    }


def _environment() -> dict[str, str]:
    """Environment variables of the service and its workers."""
    # Workers find the packages of this Python and the files that Spark sent, as the task does.
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
