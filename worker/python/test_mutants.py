#!/usr/bin/env -S python3 -B
"""Builds known mutants of the code that workers run into a wheel. For each one a test with real jobs must fail.

The simulation detects each mutant as well (`make sim-mutants`). This script shows that the simulated code is the shipped code: it
activates a mutant of the core, and a training script detects it. Without a mutant all of these tests must pass.

The wheel is installed in a temporary folder, which is first on the path of the tests. The environment of the tests is not changed.

Usage: worker/python/test_mutants.py [NAME...]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: The code of the core and of the ledger that a worker runs.
SOURCES = ["../../driver/core/src/worker", "../../driver/core/src/hold.rs", "../data/ledger/src"]

#: Mutants (driver/core/src/mutant.rs), and the test that each of them fails.
TESTS = {
    # The live state.
    "NoRestore": "core/test_loop.py::test_survivors_begin_with_the_commit_and_not_with_what_a_failure_has_left",
    "TrainUnnoted": "core/test_elastic.py::test_workers_that_never_commit_begin_again_after_a_failure",
    "UnseenBase": "core/test_bases.py::test_rank_0_begins_with_the_base_if_its_restore_gives_something_older",
    # Reset callbacks.
    "CallbacksSeeTorn": "core/test_loop.py::test_survivors_begin_with_the_commit_and_not_with_what_a_failure_has_left",
    "CallbacksSeeOlder": "core/test_loop.py::test_callbacks_of_survivors_count_when_only_the_dead_had_made_the_commit",
    "CallbacksUncounted": "core/test_loop.py::test_newcomers_get_what_reset_callbacks_change",
    # Commits.
    "HalfCommit": "core/test_elastic.py::test_a_commit_is_refused_once_an_operation_was_cut_short",
    "AbortedCommitRefused": "core/test_elastic.py::test_a_commit_that_survivors_are_on_their_way_to_is_kept",
    "CommitIdReused": "core/test_elastic.py::test_survivors_of_a_sigkill_go_on_from_the_newest_commit",
    "FirstByAll": "core/test_bases.py::test_without_a_commit_only_rank_0_makes_the_first",
    "RootNotFollowed": "core/test_bases.py::test_what_callbacks_changed_is_kept_by_a_newcomer_that_has_received_it",
    # Boundaries.
    "HoldPassed": "core/test_boundaries.py::test_a_worker_stays_at_a_boundary_until_the_common_one_is_known",
    "LeaveEarly": "core/test_boundaries.py::test_a_worker_that_is_behind_goes_on_to_the_boundary_of_the_first",
    "LeasePassed": "core/test_boundaries.py::test_a_worker_passes_no_boundary_once_another_round_may_run",
    # Interrupts and messages.
    "InterruptOnce": "core/test_interrupts.py::test_no_commit_is_made_after_an_interrupt_that_was_caught",
    "StopInRoundForgotten": "core/test_elastic.py::test_a_removed_worker_ends_quietly",
    "StopUnannounced": "core/test_interrupts.py::test_a_worker_that_is_told_to_stop_before_it_has_left_its_round_ends_quietly",
    "FailureUnnoted": "core/test_unreachable.py::test_a_newcomer_that_cannot_reach_a_member_is_left_out",
    "UnreachableUntold": "core/test_unreachable.py::test_a_newcomer_that_cannot_reach_a_member_is_left_out",
    # The ledger of a data set.
    "LedgerOfCommitBefore": "data/test_elastic.py::test_survivors_of_a_sigkill_go_on_with_what_is_left",
    "LedgerNotRestored": "data/test_elastic.py::test_all_workers_lost_go_on_with_model_and_rows_of_one_commit[local]",
    "LedgerLacksOwn": "data/test_elastic.py::test_survivors_of_a_sigkill_go_on_with_what_is_left",
    "RangeTwice": "data/test_elastic.py::test_workers_share_the_rows_of_each_epoch",
    "RangeLost": "data/test_elastic.py::test_workers_share_the_rows_of_each_epoch",
    "StripeSkipped": "data/test_elastic.py::test_all_workers_lost_go_on_with_model_and_rows_of_one_commit[deterministic]",
}


def main() -> int:
    chosen = sys.argv[1:] or list(TESTS)
    if unknown := [name for name in chosen if name not in TESTS]:
        sys.exit(f"test_mutants: no such mistake: {', '.join(unknown)}; there are {', '.join(TESTS)}")
    if missing := sorted(planted() - set(TESTS)):
        sys.exit(f"test_mutants: no test for {', '.join(missing)}")
    if unplanted := sorted(set(TESTS) - planted()):
        sys.exit(f"test_mutants: planted nowhere: {', '.join(unplanted)}")
    with tempfile.TemporaryDirectory(prefix="elasticrun-mutants-") as folder:
        tests = Tests(Path(folder))
        tests.run(sorted({TESTS[name] for name in chosen}))
        unseen = 0
        for number, name in enumerate(chosen, 1):
            began = time.monotonic()
            seen = not tests.pass_with(name)
            unseen += not seen
            result = "fails" if seen else "PASSES: NOT SEEN"
            took = time.monotonic() - began
            print(f"{number:2}/{len(chosen)} {name:24} {TESTS[name]} {result}, {took:.1f} s", flush=True)
    print(f"{len(chosen)} mistakes, {len(chosen) - unseen} seen, {unseen} not seen", flush=True)
    return 1 if unseen else 0


def planted() -> set[str]:
    """The mutants in the code that a worker runs."""
    places = [HERE / source for source in SOURCES]
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*.rs"))]
    return {name for file in files for name in re.findall(r"planted\(Mutant::(\w+)\)", file.read_text())}


class Tests:
    """The tests, with a wheel of mutants of its own.

    Args:
        folder: where the wheel is written and installed.
    """

    def __init__(self, folder: Path) -> None:
        self._python = Path(last_word("./venv.sh", "test"))
        wheel = last_word("./build.sh", "dev", str(folder), "mutants")
        site = folder / "site"
        install = [self._python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*install, "--target", site, wheel], check=True)
        self._env = {
            **os.environ,
            "ELASTICRUN_WHEEL": wheel,
            "ELASTICRUN_BIN": f"{site}/bin/elasticrun",
            "PATH": f"{site}/bin:{self._python.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(site),
        }

    def run(self, tests: list[str]) -> None:
        """Runs tests without a mutant. Exits if one of them fails."""
        print(f"without a mistake: {len(tests)} tests", flush=True)
        if done := self._failed(tests, {}):
            sys.exit(f"the tests fail without a mistake:\n{done}")

    def pass_with(self, mutant: str) -> bool:
        """Whether the test of a mutant passes with it."""
        return not self._failed([TESTS[mutant]], {"ELASTICRUN_MUTANT": mutant})

    def _failed(self, tests: list[str], more: dict[str, str]) -> str:
        """The output of tests if one of them fails; empty if all pass. Exits if they do not run."""
        command = [self._python, "-m", "pytest", "-q", "-x", *(f"tests/{test}" for test in tests)]
        done = subprocess.run(
            command, cwd=HERE, env={**self._env, **more}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode not in (0, 1):
            sys.exit(f"the tests do not run:\n{done.stdout}")
        return done.stdout if done.returncode else ""


def last_word(*command: str) -> str:
    """Runs a script and returns the last word of its output."""
    done = subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.split()[-1]


if __name__ == "__main__":
    sys.exit(main())
