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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticrun"


class Tally:
    """Runs, failures and seconds of each test at one state of the code."""

    def __init__(self, folder: Path, code: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{code}.json"
        self.logs = folder / f"{code}.failures"
        # Two runs at once would overwrite each other's counts, and each is the other's noise.
        self._lock = open(folder / "lock", "w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("make flaky runs already: its tally is in use")
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

    def table(self) -> str:
        """One line for each suite, then one for each test that has failed."""
        suites: dict[str, list[dict[str, float]]] = {}
        for test, entry in self.tests.items():
            suites.setdefault(test.split(" ")[0], []).append(entry)
        lines = [f"{'suite':<44} {'tests':>5} {'fewest runs':>11} {'runs':>7} {'failures':>8} {'hours':>6}"]
        for suite, entries in sorted(suites.items()):
            runs = [int(entry["runs"]) for entry in entries]
            failures = sum(int(entry["failures"]) for entry in entries)
            hours = sum(entry["seconds"] for entry in entries) / 3600
            lines.append(f"{suite:<44} {len(runs):>5} {min(runs):>11} {sum(runs):>7} {failures:>8} {hours:>6.2f}")
        for test, entry in sorted(self.failed().items()):
            lines.append(f"FAILED {entry['failures']:.0f} of {entry['runs']:.0f} runs: {test}")
        return "\n".join(lines)

    def failed(self) -> dict[str, dict[str, float]]:
        return {test: entry for test, entry in self.tests.items() if entry["failures"]}

    def earlier(self) -> tuple[float, int]:
        """Seconds at all other code, and at how many states of it."""
        others = [path for path in self.path.parent.glob("*.json") if path != self.path]
        return sum(json.loads(path.read_text())["seconds"] for path in others), len(others)


def code() -> str:
    """Names the files of the working tree by their content, but documents."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "GIT_INDEX_FILE": f"{folder}/index"}
        subprocess.run(["git", "add", "--all"], cwd=ROOT, env=env, check=True)
        files = subprocess.run(
            ["git", "ls-files", "--stage"], cwd=ROOT, env=env, check=True, capture_output=True, text=True
        )
    lines = (line for line in files.stdout.splitlines() if not line.endswith(".md"))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
