"""Jobs of the real binary, and scripts without one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from elasticrun import _binary

#: Longest wait for a job in seconds: many times what any takes on two busy processors. Importing TensorFlow in several
#: workers at once takes most of a minute there.
TIMEOUT = 300.0

#: Counts, one commit a step; each step waits for all ranks.
COUNT = """
import os, signal, sys, time
import elasticrun as e
e.init()
state = e.ObjectState(step=0, count=0.0)

def count(state, last, before=lambda: None):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    while state.step < last:
        before()
        state.count += e.allreduce(1.0)
        state.step += 1
        state.commit()
    return state.count
"""


class Job:
    """A program under way, whose lines of output are read as they come.

    Args:
        command: what to run, in a session of its own, with one thread for each library that computes.
        env: more variables of its environment.
    """

    def __init__(self, command: Sequence[str], **env: str) -> None:
        #: Away with the job: for what its processes leave behind.
        self._scratch = tempfile.TemporaryDirectory(prefix="elasticrun-test-")
        self.lines: list[str] = []
        self._next = 0
        self._changed = threading.Condition()
        self._ended = False
        self.process = subprocess.Popen(
            command,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PYTHONUNBUFFERED": "1",
                "TMPDIR": self._scratch.name,
                **env,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def until(self, words: str) -> str:
        """The next line that has ``words``."""
        with self._changed:
            while True:
                while self._next < len(self.lines):
                    line = self.lines[self._next]
                    self._next += 1
                    if words in line:
                        return line
                assert not self._ended, f"no line has {words!r}:\n{self.text}"
                assert self._changed.wait(TIMEOUT), f"no line has {words!r} yet:\n{self.text}"

    def end(self) -> int:
        """Waits for the end; the exit code."""
        code = self.process.wait(TIMEOUT)
        self._reader.join(TIMEOUT)
        return code

    def succeed(self) -> str:
        """Waits for the end, which must be well; the output."""
        assert self.end() == 0, self.text
        return self.text

    def fail(self, code: int = 1) -> str:
        """Waits for the end with ``code``; the output."""
        assert self.end() == code, self.text
        return self.text

    @property
    def text(self) -> str:
        """All output so far."""
        return "\n".join(self.lines)

    def stop(self) -> None:
        """Ends it if it runs, and removes what it left."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self._reader.join(TIMEOUT)
        self._scratch.cleanup()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def job(*arguments: str, **env: str) -> Job:
    """A job of the real binary."""
    return Job([str(_binary.find()), *arguments], **env)


def run(*arguments: str, **env: str) -> tuple[int, str]:
    """Runs a job to its end: exit code and output."""
    with job(*arguments, **env) as one:
        return one.end(), one.text


class Starter:
    """Starts scripts that are written in tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs: list[Job] = []

    def script(self, text: str, name: str = "script.py") -> Path:
        """A file with ``text``, less its indentation."""
        path = self._folder / name
        path.write_text(textwrap.dedent(text))
        return path

    def command(self, *command: str, **env: str) -> Job:
        """Starts a command."""
        job = Job(command, **env)
        self._jobs.append(job)
        return job

    def job(self, flags: str, text: str, **env: str) -> Job:
        """Starts a job with ``flags`` whose workers run ``text``."""
        script = str(self.script(text))
        return self.command(str(_binary.find()), *flags.split(), sys.executable, script, **env)

    def train(self, flags: str, script: Path, *words: str, **env: str) -> Job:
        """Starts a job with ``flags`` whose workers run ``script`` with ``words``."""
        command = [sys.executable, str(script), *words]
        return self.command(str(_binary.find()), *flags.split(), *command, **env)

    def count(self, flags: str, text: str) -> Job:
        """Starts a job whose workers run ``text`` after :data:`COUNT`."""
        return self.job(flags, COUNT + text)

    @staticmethod
    def rounds(text: str) -> list[tuple[int, ...]]:
        """(round, rank, size, first step) of each member of each round, from the output of counting workers."""
        pattern = r"ROUND (\d+) RANK (\d+) OF (\d+) FROM (\d+)"
        return sorted(tuple(map(int, found)) for found in re.findall(pattern, text))

    def alone(self, text: str, **env: str) -> str:
        """Runs ``text`` without a job, which must end well; its output."""
        return self.command(sys.executable, str(self.script(text)), **env).succeed()

    def hosts(self, text: str) -> Callable[[str], None]:
        """Makes ``discover.sh``, which prints ``text``; gives a function that changes what it prints."""
        hosts = self._folder / "hosts"

        def change(text: str) -> None:
            new = hosts.with_suffix(".new")
            new.write_text(text)
            new.rename(hosts)

        change(text)
        script = self.script(f"#!/bin/sh\ncat '{hosts}'\n", "discover.sh")
        script.chmod(0o755)
        return change

    @property
    def discovery(self) -> str:
        """Path of the script that :meth:`hosts` made."""
        return str(self._folder / "discover.sh")

    def stop(self) -> None:
        """Ends all that was started."""
        for job in self._jobs:
            job.stop()
