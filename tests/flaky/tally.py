"""What has been counted, at which code."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticrun"


FOLDER = CACHE / "flaky"

#: What no test here runs: other tests, and what is read or measured.
APART = re.compile(r"\.md$|^(tests|benches|docs)/|/tests/")


def lock(suite: str) -> IO[str]:
    """Two runs at once of one suite would overwrite each other's counts. Hold what this gives."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    held = open(FOLDER / f"{suite}.lock", "w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"make flaky runs already for {suite}: its tally is in use")
    return held


@contextmanager
def programs(kind: int) -> Iterator[None]:
    """The programs that suites beside each other share: LOCK_EX to build them, LOCK_SH to run tests that start them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "turn.lock", "w") as turn, open(FOLDER / "programs.lock", "w") as held:
        # Runs that begin later do not overtake a build that waits.
        for file, wanted in ((turn, fcntl.LOCK_EX), (held, kind)):
            try:
                fcntl.flock(file, wanted | fcntl.LOCK_NB)
            except BlockingIOError:
                print("waits for a suite beside this one to end its build or its passes", flush=True)
                fcntl.flock(file, wanted)
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield


class Tally:
    """Runs, failures and seconds of each test of a suite at one state of the code."""

    def __init__(self, suite: str, folders: Sequence[str]) -> None:
        self._suite = suite
        name = f"{suite}-{code(folders)}"
        self.path = FOLDER / f"{name}.json"
        self.logs = FOLDER / f"{name}.failures"
        empty: dict[str, Any] = {"seconds": 0.0, "tests": {}}
        self._all: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else empty

    @property
    def tests(self) -> dict[str, dict[str, float]]:
        tests: dict[str, dict[str, float]] = self._all["tests"]
        return tests

    @property
    def seconds(self) -> float:
        return float(self._all["seconds"])

    def runs(self, test: str) -> int:
        return int(self.tests.get(test, {}).get("runs", 0))

    def mean(self, test: str) -> float:
        """Seconds that a run of it takes; 0 is unknown."""
        entry = self.tests.get(test, {})
        return entry.get("seconds", 0.0) / max(entry.get("runs", 0), 1)

    def count(self, test: str, passed: bool, seconds: float) -> None:
        entry = self.tests.setdefault(test, {"runs": 0, "failures": 0, "seconds": 0.0})
        entry["runs"] += 1
        entry["failures"] += not passed
        entry["seconds"] += seconds
        if not passed:
            print(f"FAILED {test}", flush=True)

    def keep(self, name: str, text: str) -> Path:
        """Keeps what a failed test said."""
        self.logs.mkdir(exist_ok=True)
        path = self.logs / re.sub(r"[^\w.-]+", "_", f"{name}-{time.strftime('%m%d-%H%M%S')}.log")
        path.write_text(text)
        print(f"       {path}", flush=True)
        return path

    def spend(self, seconds: float) -> None:
        self._all["seconds"] += seconds
        self.save()

    def save(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self._all, indent=1, sort_keys=True))
        new.rename(self.path)

    def lines(self) -> list[str]:
        """One line for each program of the suite, then one for each test that has failed."""
        programs: dict[str, list[dict[str, float]]] = {}
        for test, entry in self.tests.items():
            programs.setdefault(test.split(" ")[0], []).append(entry)
        lines = []
        for program, entries in sorted(programs.items()):
            runs = [int(entry["runs"]) for entry in entries]
            failures = sum(int(entry["failures"]) for entry in entries)
            hours = sum(entry["seconds"] for entry in entries) / 3600
            lines.append(f"{program:<44} {len(runs):>5} {min(runs):>11} {sum(runs):>7} {failures:>8} {hours:>6.2f}")
        for test, entry in sorted(self.failed().items()):
            lines.append(f"FAILED {entry['failures']:.0f} of {entry['runs']:.0f} runs: {test}")
        return lines

    def failed(self) -> dict[str, dict[str, float]]:
        return {test: entry for test, entry in self.tests.items() if entry["failures"]}

    def earlier(self) -> tuple[float, int]:
        """Seconds at all other code, and at how many states of it."""
        others = [path for path in FOLDER.glob(f"{self._suite}-*.json") if path != self.path]
        return sum(json.loads(path.read_text())["seconds"] for path in others), len(others)


def code(folders: Sequence[str]) -> str:
    """Names the files of the working tree by their content: those that are shipped, and these folders of tests."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "GIT_INDEX_FILE": f"{folder}/index"}
        subprocess.run(["git", "add", "--all"], cwd=ROOT, env=env, check=True)
        files = subprocess.run(
            ["git", "ls-files", "--stage"], cwd=ROOT, env=env, check=True, capture_output=True, text=True
        )

    def counts(line: str) -> bool:
        path = line.split("\t", 1)[1]
        return not APART.search(path) or path.startswith(tuple(f"{folder}/" for folder in folders))

    lines = filter(counts, files.stdout.splitlines())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
