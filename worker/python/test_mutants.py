#!/usr/bin/env -S python3 -B
"""Builds known mutants of the worker's state machine into the wheel. For each one a test with real jobs must fail.

The simulation detects each mutant as well (`make sim-mutants`). This script shows that the simulated code is the shipped code: it
activates a mutant of the core, and a training script detects it. Without a mutant all of these tests must pass.

Usage: worker/python/test_mutants.py [NAME...]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: Mutants (driver/core/src/mutant.rs), and the test that each of them fails.
TESTS = {
    "NoRestore": "test_loop.py::test_survivors_begin_with_the_commit_and_not_with_what_a_failure_has_left",
    "TrainUnnoted": "test_elastic.py::test_workers_that_never_commit_begin_again_after_a_failure",
    "CallbacksSeeTorn": "test_loop.py::test_survivors_begin_with_the_commit_and_not_with_what_a_failure_has_left",
    "CallbacksSeeOlder": "test_loop.py::test_callbacks_of_survivors_count_when_only_the_dead_had_made_the_commit",
    "CallbacksUncounted": "test_loop.py::test_newcomers_get_what_reset_callbacks_change",
    "HalfCommit": "test_elastic.py::test_a_commit_is_refused_once_an_operation_was_cut_short",
    "AbortedCommitRefused": "test_elastic.py::test_a_commit_that_survivors_are_on_their_way_to_is_kept",
    "CommitIdReused": "test_elastic.py::test_survivors_of_a_sigkill_go_on_from_the_newest_commit",
}

#: Mutants that no training script has detected so far, with the reason: another rule of the worker compensates for each of them
#: unless several failures coincide. The simulation detects them.
SIMULATION_ONLY = {
    "UnseenBase": "rank 0 fetches the base before its callbacks run, and the others follow rank 0",
    "RootNotFollowed": "what members receive is rank 0's all the same, under another id",
    "FirstByAll": "members that made another commit 0 give it up for that of rank 0",
    "FailureUnnoted": "the failed call raises, and elastic.run leaves the round",
    "StopUnannounced": "elastic.run ends such a process with exit code 0, which is no failure",
}


def last(*words: str) -> str:
    """Runs a script and returns the last word of its output."""
    done = subprocess.run(words, cwd=HERE, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.split()[-1]


def main() -> int:
    chosen = sys.argv[1:] or list(TESTS)
    if unknown := [name for name in chosen if name not in TESTS]:
        sys.exit(f"test_mutants: no such mistake: {', '.join(unknown)}; there are {', '.join(TESTS)}")
    python = Path(last("./venv.sh", "test"))
    with tempfile.TemporaryDirectory(prefix="elasticrun-mutants-") as out:
        wheel = last("./build.sh", "dev", out, "mutants")
        install = [
            python,
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "--force-reinstall",
        ]
        subprocess.run([*install, wheel], check=True)
        env = {
            **os.environ,
            "ELASTICRUN_WHEEL": wheel,
            "ELASTICRUN_BIN": f"{python.parent}/elasticrun",
            "PATH": f"{python.parent}:{os.environ['PATH']}",
        }

        def passes(tests: list[str], mutant: str | None) -> bool:
            command = [python, "-m", "pytest", "-q", "-x", *(f"tests/core/{test}" for test in tests)]
            planted = {} if mutant is None else {"ELASTICRUN_MUTANT": mutant}
            run = subprocess.run(
                command, cwd=HERE, env={**env, **planted}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            if run.returncode > 1 or (mutant is None and run.returncode):
                sys.exit(f"the tests do not run:\n{run.stdout}")
            return run.returncode == 0

        passes(sorted({TESTS[name] for name in chosen}), None)
        unseen = 0
        for name in chosen:
            began = time.monotonic()
            seen = not passes([TESTS[name]], name)
            unseen += not seen
            result = "fails" if seen else "PASSES: NOT SEEN"
            print(f"{name:24} {TESTS[name]} {result}, {time.monotonic() - began:.1f} s", flush=True)
    for name, why in SIMULATION_ONLY.items():
        print(f"{name:24} by the simulation only: {why}")
    print(f"{len(chosen)} mistakes, {unseen} not seen; {len(SIMULATION_ONLY)} by the simulation only")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
