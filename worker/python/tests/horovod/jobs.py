"""A job of one of Horovod's example scripts, whose hosts the test changes while it runs."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from elasticrun import _binary

#: What a test may wait for one thing, in seconds: on two cores frameworks take long to start.
TIMEOUT = 120


class Job:
    """elasticrun with two workers, its hosts in a file, and what it has printed.

    Args:
        directory: where it runs, and where its hosts are.
        command: the command of the workers.
        env: the environment of the job.
    """

    def __init__(self, directory: Path, command: list[str], env: Mapping[str, str]) -> None:
        self._directory = directory
        self._changed = threading.Condition()
        self._printed: list[str] = []
        self._ended = False
        self.set_hosts(["localhost:2"])
        script = directory / "discover.sh"
        script.write_text(f"#!/bin/sh\ncat {directory}/hosts\n")
        script.chmod(0o755)
        options = ["-np", "2", "--max-np", "4", "--host-discovery-script", str(script)]
        self._process = subprocess.Popen(
            [str(_binary.find()), *options, "--", *command],
            cwd=directory,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        # Told to stop, it ends its workers first.
        self._process.terminate()
        self._process.wait(TIMEOUT)
        self._reader.join(TIMEOUT)
        print(self.output)

    @property
    def output(self) -> str:
        """All that was printed so far."""
        with self._changed:
            return "".join(self._printed)

    def set_hosts(self, hosts: list[str]) -> None:
        """Sets the output of the discovery script: lines such as `localhost:2`."""
        new = self._directory / "hosts.new"
        new.write_text("".join(f"{host}\n" for host in hosts))
        new.rename(self._directory / "hosts")

    def wait_for(self, pattern: str, count: int = 1) -> None:
        """Waits until `count` lines with a match of `pattern` were printed."""
        deadline = time.monotonic() + TIMEOUT
        looked_at = found = 0
        with self._changed:
            while True:
                new = self._printed[looked_at:]
                looked_at += len(new)
                found += sum(bool(re.search(pattern, line)) for line in new)
                if found >= count:
                    return
                left = deadline - time.monotonic()
                if left <= 0 or self._ended:
                    why = "the job ended" if self._ended else f"{TIMEOUT} s passed"
                    raise AssertionError(f"{why} before this was printed {count} times: {pattern}")
                self._changed.wait(left)

    def wait(self, patience: float = TIMEOUT) -> int:
        """Waits for the end of the job and returns its exit code."""
        code = self._process.wait(patience)
        self._reader.join(TIMEOUT)
        return code

    def workers(self, host: str) -> list[int]:
        """Process ids of the workers on `host`."""
        wanted = f"HOROVOD_HOSTNAME={host}".encode()
        here = str(self._directory)
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if os.readlink(entry / "cwd") == here and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except (OSError, ValueError):
                continue
        return sorted(found)

    def _read(self) -> None:
        assert self._process.stdout is not None, "it is a pipe"
        for line in self._process.stdout:
            with self._changed:
                self._printed.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()
