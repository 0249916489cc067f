"""Runs tests and counts them; burns beside them."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tally import ROOT, Tally, programs

#: A line of nextest about a test that has ended. Slow ones have lines of their own before.
ENDED = re.compile(
    r"^\s*(?P<status>PASS|LEAK|FAIL|LEAK-FAIL|TIMEOUT|TMT|ABORT|SIG\w+)\s+\[\s*(?P<seconds>[\d.]+)s\]"
    r"(?:\s+\[\d+/\S+\])?\s+\(\s*\d+/\d+\)\s+(?P<binary>\S+)\s+(?P<test>\S+)\s*$"
)

LIBC = ctypes.CDLL(None)


def start(command: list[str], on_our_death: signal.Signals, **more: Any) -> subprocess.Popen[str]:
    """Starts a process in a session of its own, so that Ctrl-C comes to us alone; it gets a signal when we die."""

    def prepare() -> None:
        pr_set_pdeathsig = 1
        LIBC.prctl(pr_set_pdeathsig, on_our_death)
        # A shell has its background jobs ignore it, and we end what we start by it.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    return subprocess.Popen(command, start_new_session=True, errors="replace", preexec_fn=prepare, **more)


@contextmanager
def burning(count: int) -> Iterator[None]:
    """Processes that take all the time they get."""
    burners = []
    try:
        for _ in range(count):
            burners.append(start([sys.executable, "-c", "while True: pass"], signal.SIGKILL))
        yield
    finally:
        for burner in burners:
            burner.kill()
        for burner in burners:
            burner.wait()


def stop(process: subprocess.Popen[str]) -> None:
    """Ends a runner of tests as Ctrl-C does, with all that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    try:
        # What it still says is read, so that it does not wait for us.
        process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def make_ready(command: list[str], cwd: Path, **more: Any) -> str:
    """Runs what makes the tests ready, and gives what it prints. It ends with us, and so does what it has started."""
    process = start(command, signal.SIGTERM, cwd=cwd, stdout=subprocess.PIPE, text=True, **more)
    try:
        said, _ = process.communicate()
    finally:
        stop(process)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, said)
    return said


class Nextest:
    """Tests in Rust, of one package."""

    def __init__(self, package: str, profile: str) -> None:
        self.skipped: set[str] = set()
        self._scope = f"package({package})"
        self._profile = profile
        self._scratch = tempfile.TemporaryDirectory(prefix="elasticrun-flaky-")
        # What has been built, for runs that build nothing.
        self._binaries = Path(self._scratch.name) / "binaries.json"
        self._workspace = Path(self._scratch.name) / "workspace.json"

    def tests(self) -> list[str]:
        # Also the programs that tests start.
        make_ready(["cargo", "build", "--locked", "--workspace"], ROOT)
        binaries = ["cargo", "nextest", "list", "--locked", "--workspace", "--list-type", "binaries-only"]
        self._binaries.write_text(make_ready([*binaries, "--message-format", "json"], ROOT))
        self._workspace.write_text(make_ready(["cargo", "metadata", "--locked", "--format-version", "1"], ROOT))
        command = [*self._nextest("list"), "-E", self._scope, "--message-format", "json"]
        suites = json.loads(make_ready(command, ROOT))["rust-suites"]
        return [
            f"{suite} {test}"
            for suite, of in suites.items()
            for test, case in of["testcases"].items()
            if not case["ignored"] and case["filter-match"]["status"] == "matches"
        ]

    def _nextest(self, what: str) -> list[str]:
        """Without a build: a suite beside this one may run the same programs."""
        built = ["--binaries-metadata", str(self._binaries), "--cargo-metadata", str(self._workspace)]
        return ["cargo", "nextest", what, *built, "--profile", self._profile]

    def run(self, tests: list[str], passes: int, tally: Tally) -> None:
        """Runs each of ``tests`` so often and counts it as it ends."""
        wanted: dict[str, list[str]] = {}
        for test in tests:
            suite, name = test.split(" ", 1)
            wanted.setdefault(suite, []).append(f"test(={name})")
        chosen = [f"(binary_id(={suite}) & ({' | '.join(names)}))" for suite, names in wanted.items()]
        command = [*self._nextest("run"), "-E", " | ".join(chosen), "--stress-count", str(passes)]
        command += ["--no-fail-fast", "--color", "never", "--status-level", "all", "--final-status-level", "none"]
        command += ["--failure-output", "immediate"]
        with programs(fcntl.LOCK_SH):
            self._count(
                start(command, signal.SIGTERM, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT), tally
            )

    def _count(self, runner: subprocess.Popen[str], tally: Tally) -> None:
        """Counts each test as it ends."""
        # Of the test that has failed last, until the next line that is nextest's own.
        failed, said = "", ""
        try:
            for line in runner.stdout or ():
                ended = ENDED.match(line)
                if failed and (ended or line.startswith(" Stress test [")):
                    tally.keep(failed, said)
                    failed = ""
                if ended:
                    test = f"{ended['binary']} {ended['test']}"
                    passed = ended["status"] in ("PASS", "LEAK")
                    tally.count(test, passed, float(ended["seconds"]))
                    failed, said = ("", "") if passed else (test, line)
                elif failed:
                    said += line
                elif line.startswith((" Stress test [", "error")):
                    print(line.strip(), flush=True)
                    tally.save()
        finally:
            stop(runner)


class Pytest:
    """Tests of the Python package, on the wheel as a user gets it: a build beside them changes nothing for them."""

    def __init__(self, at_once: int) -> None:
        self.skipped: set[str] = set()
        self._at_once = at_once
        self._folder = ROOT / "worker/python"
        # A worker of a test that was cut short may still write into it.
        self._scratch = tempfile.TemporaryDirectory(prefix="elasticrun-flaky-", ignore_cleanup_errors=True)
        self._command: list[str] = []
        self._env: dict[str, str] = {}

    def tests(self) -> list[str]:
        def last(*words: str) -> str:
            return make_ready(list(words), self._folder).split()[-1]

        python = last("./venv.sh", "test")
        wheel = last("./build.sh", "dev", self._scratch.name)
        install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
        make_ready([*install, "--force-reinstall", wheel], self._folder)
        folder = Path(python).parent
        path = f"{folder}:{os.environ['PATH']}"
        self._env = {"ELASTICRUN_WHEEL": wheel, "ELASTICRUN_BIN": f"{folder}/elasticrun", "PATH": path}
        # As pyproject.toml says, but for how much is printed.
        options = ["-p", "no:cacheprovider", "-o", "addopts=--strict-markers --import-mode=importlib"]
        self._command = [python, "-m", "pytest", *options]
        listed = subprocess.run(
            [*self._command, "--collect-only", "-q"],
            cwd=self._folder,
            env={**os.environ, **self._env},
            stdout=subprocess.PIPE,
            text=True,
        )
        tests = [f"python {line}" for line in listed.stdout.splitlines() if "::" in line]
        if listed.returncode or not tests:
            sys.exit(f"pytest cannot list its tests:\n{listed.stdout}")
        return tests

    def run(self, tests: list[str], passes: int, tally: Tally) -> None:
        """Runs each of ``tests`` so often, some files at once, and counts it when its file has been run.

        The next pass begins while the longest files of the last one still run.
        """
        files: dict[str, list[str]] = {}
        for test in tests:
            files.setdefault(test.split("::")[0], []).append(test)
        # The longest first, as far as it is known.
        known = {file: sum(tally.mean(test) for test in of) for file, of in files.items()}
        names = sorted(files, key=lambda file: -known[file])
        waiting = [(file, number) for number in range(passes) for file in names]
        running: dict[tuple[str, int], subprocess.Popen[str]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self._at_once:
                    run = waiting.pop(0)
                    running[run] = self._start(run, files[run[0]])
                ended = next((run for run in running if running[run].poll() is not None), None)
                if ended is None:
                    time.sleep(0.1)
                    continue
                self._ended(ended, running.pop(ended), tally)
        finally:
            for run, runner in running.items():
                stop(runner)
                self._read(run, tally)

    def _place(self, run: tuple[str, int], kind: str) -> Path:
        """A file of one run: of a file of tests, in a pass."""
        file, number = run
        return Path(self._scratch.name) / f"{re.sub(r'[^a-z_]+', '-', file)}-{number}.{kind}"

    def _start(self, run: tuple[str, int], tests: list[str]) -> subprocess.Popen[str]:
        report = self._place(run, "xml")
        report.unlink(missing_ok=True)
        names = [test.split(" ", 1)[1] for test in tests]
        with open(self._place(run, "log"), "w") as said:
            return start(
                [*self._command, f"--junitxml={report}", "-o", "junit_family=xunit1", *names],
                signal.SIGTERM,
                cwd=self._folder,
                env={**os.environ, **self._env},
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    def _ended(self, run: tuple[str, int], runner: subprocess.Popen[str], tally: Tally) -> None:
        if not self._place(run, "xml").exists():
            sys.exit(f"pytest ended with {runner.returncode}:\n{self._place(run, 'log').read_text()}")
        self._read(run, tally)
        tally.save()

    def _read(self, run: tuple[str, int], tally: Tally) -> None:
        """Counts what a file's run has reported; of one that was cut short, those that had ended."""
        report = self._place(run, "xml")
        if not report.exists():
            return
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            test = f"python {case.get('file')}::{case.get('name')}"
            if case.find("skipped") is not None:
                self.skipped.add(test)
                continue
            wrong = [*case.iter("failure"), *case.iter("error")]
            if any("KeyboardInterrupt" in (each.text or "") for each in wrong):
                continue
            tally.count(test, not wrong, float(case.get("time") or 0))
            if wrong:
                tally.keep(test, "\n".join(f"{each.get('message')}\n{each.text}" for each in wrong))
