#!/usr/bin/env -S python3 -B
"""Runs the tests that are about processes again and again on a busy machine, and keeps count: `make flaky`.

What is counted belongs to the code: the name of a suite's tally has the hash of what is shipped and of the suite's own
folders, committed or not. A later run goes on where the last one stopped, so that hours can be collected in pieces; a
suite whose code is another begins anew. Invariants:

- Suites may run beside each other, each by a command of its own: none builds programs while another
  one runs tests that start them.
- A run that was cut short by the end of MINUTES, by Ctrl-C or by a signal counts for no test.
- The burning processes end with this one, even when it is killed.
- The exit code is 1 if any test has ever failed at this code, in this run or an earlier one.
"""

from __future__ import annotations

import argparse
import fcntl
import re
import signal
import subprocess
import sys
import time

from runners import Nextest, Pytest, burning
from tally import Tally, lock, programs

#: Passes of one call of a runner at most.
PASSES = 5


class OutOfTime(Exception):
    """MINUTES are over."""


#: Names of suites, the packages of those in Rust, and their folders.
RUST = (
    ("processes", "elasticrun-process-tests", ["tests/process"]),
    ("agent", "elasticrun-agent", ["worker/agent/tests"]),
    ("ps", "elasticrun-ps", ["worker/ps"]),
    ("ssh", "elasticrun-ssh-tests", ["tests/ssh", "tests/process"]),
    ("etcd", "elasticrun-etcd-tests", ["tests/etcd"]),
)
PYTHON = ["worker/python/tests"]


def complete(suite: Nextest | Pytest, tests: list[str], runs: int, tally: Tally) -> None:
    """Runs all tests until each has been run so often."""
    while left := [test for test in tests if tally.runs(test) < runs and test not in suite.skipped]:
        before = sum(map(tally.runs, left)), len(suite.skipped)
        suite.run(left, min(PASSES, min(runs - tally.runs(test) for test in left)), tally)
        tally.save()
        if before == (sum(map(tally.runs, left)), len(suite.skipped)):
            sys.exit("nothing was run: see the lines above")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50, help="runs of each test in Rust")
    parser.add_argument("--python-runs", type=int, default=10, help="runs of each test in Python")
    parser.add_argument("--burners", type=int, default=8, help="processes that burn beside the tests")
    parser.add_argument("--minutes", type=float, default=0, help="stop tests after so many; 0 is at the end")
    parser.add_argument("--suites", default="", help="a regular expression; only suites whose name it finds")
    parser.add_argument("--filter", default="", help="a regular expression; only tests whose name it finds")
    parser.add_argument("--profile", default="flaky", help="the profile of nextest")
    parser.add_argument("--files", type=int, default=6, help="files of tests in Python at once")
    options = parser.parse_args()

    suites: list[tuple[str, Nextest | Pytest, Tally, int]] = [
        (name, Nextest(package, options.profile), Tally(name, folders), options.runs) for name, package, folders in RUST
    ]
    suites.append(("python", Pytest(options.files), Tally("python", PYTHON), options.python_runs))
    suites = [suite for suite in suites if re.search(options.suites, suite[0]) and suite[3]]
    held = [lock(name) for name, *_ in suites]
    left = options.minutes * 60
    done = False

    def over(number: int, _: object) -> None:
        raise OutOfTime if number == signal.SIGALRM else KeyboardInterrupt

    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, over)
    wanted = re.compile(options.filter)
    try:
        for _, suite, tally, runs in suites:
            with programs(fcntl.LOCK_EX):
                chosen = [test for test in suite.tests() if wanted.search(test)]
            began = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, left)
            try:
                with burning(options.burners):
                    complete(suite, chosen, runs, tally)
            finally:
                left = signal.setitimer(signal.ITIMER_REAL, 0)[0]
                tally.spend(time.monotonic() - began)
        done = True
    except subprocess.CalledProcessError as failed:
        sys.exit(f"what is tested cannot be built: {failed.cmd[0]} ended with {failed.returncode}; see the lines above")
    except (OutOfTime, KeyboardInterrupt) as why:
        print("the time is over" if isinstance(why, OutOfTime) else "interrupted", flush=True)
    print(f"{'program':<44} {'tests':>5} {'fewest runs':>11} {'runs':>7} {'failures':>8} {'hours':>6}")
    for _, _, tally, _ in suites:
        print("\n".join(tally.lines() or [f"{tally.path.stem}: no runs yet"]))
    for _, _, tally, _ in suites:
        earlier, states = tally.earlier()
        print(f"{tally.seconds / 3600:.2f} hours at this code, {earlier / 3600:.2f} at {states} others; {tally.path}")
    for each in held:
        each.close()
    if not done:
        print("not all runs are made: the same command goes on")
    return 1 if any(tally.failed() for _, _, tally, _ in suites) else 0


if __name__ == "__main__":
    sys.exit(main())
