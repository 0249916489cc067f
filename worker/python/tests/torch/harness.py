"""Jobs of the real binary, as the tests start them."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from elasticrun import _binary

HERE = Path(__file__).parent
#: Longest time of a job in seconds: many times what it takes on two busy cores.
PATIENCE = 240


def environment(**more: str) -> dict[str, str]:
    """This process's environment, one thread for each worker, and state of its own."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **more}


class Job:
    """A job under way. Lines of its output come as they are printed."""

    def __init__(self, *arguments: str, **more: str) -> None:
        self.process = subprocess.Popen(
            [str(_binary.find()), *arguments],
            env=environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.output: list[str] = []
        self._deadline = time.monotonic() + PATIENCE

    def lines(self) -> Iterator[str]:
        """The lines to come."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line.rstrip("\n"))
            yield self.output[-1]

    def until(self, words: str) -> str:
        """The next line that has ``words``; fails the test if the output ends before."""
        for line in self.lines():
            if words in line:
                return line
        raise AssertionError(f"the output ended without {words!r}:\n{self.text()}")

    def finish(self) -> int:
        """Waits for the end; the exit code."""
        for _ in self.lines():
            pass
        return self.process.wait(max(self._deadline - time.monotonic(), 1))

    def text(self) -> str:
        """All output so far."""
        return "\n".join(self.output)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


def run(*arguments: str, **more: str) -> tuple[int, str]:
    """Runs a job to its end: exit code and output."""
    with Job(*arguments, **more) as job:
        code = job.finish()
        return code, job.text()


def script(name: str) -> list[str]:
    """The command of the worker script ``name``."""
    return [sys.executable, str(HERE / "workers" / name)]


def checks_of(module: str) -> list[str]:
    """Names of the checks in a module of ``checks/``, in order, without importing it."""
    tree = ast.parse((HERE / "checks" / f"{module}.py").read_text())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
    ]


class Checked:
    """What a job made of the checks of a module: run once, looked at by a test for each check."""

    def __init__(self, module: str, ranks: int, folder: Path, *more: str) -> None:
        self.ranks = ranks
        code, self.output = run(
            "-np",
            str(ranks),
            sys.executable,
            str(HERE / "run_checks.py"),
            module,
            str(folder),
            *more,
        )
        self.code = code
        self.reports = {
            int(path.stem): json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))
        }

    def passed(self, name: str) -> None:
        """Fails unless the check passed on all ranks."""
        assert len(self.reports) == self.ranks, self.output
        for rank, report in self.reports.items():
            outcome = report.get(name, "it was not run")
            assert outcome == "passed", f"rank {rank}: {outcome}\n{self.output}"
