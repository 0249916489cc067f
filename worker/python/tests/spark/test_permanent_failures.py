"""When no slot can be used; no cluster is needed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from elasticrun.spark.error_text import SlotFailure, UnusableExecutorError, slot_failure
from elasticrun.spark.listener import Held
from elasticrun.spark.permanent_failures import PermanentFailures
from elasticrun.spark.slots import Slots
from elasticrun.spark.task import TaskSpec, serve

MISSING = SlotFailure("no package", permanent=True)


def failures_of(*slots: int) -> PermanentFailures:
    failures = PermanentFailures()
    for slot in slots:
        failures.add(slot, MISSING)
    return failures


def test_a_job_is_hopeless_once_all_slots_have_failed_for_half_a_minute():
    failures = failures_of(0)
    assert failures.reason([0, 1], {}, 0) is None
    assert failures.reason([0, 1], {}, 100) is None, "slot 1 has not failed yet"
    failures.add(1, MISSING)
    assert failures.reason([0, 1], {}, 100) is None, "executors may register"
    assert failures.reason([0, 1], {}, 129.9) is None
    assert failures.reason([0, 1], {}, 130) == "no package"
    assert failures.reason([], {}, 130) is None


def test_a_slot_that_runs_after_a_failure_leaves_hope():
    """Slot 0 fails once and then trains, while slot 1 fails again and again."""
    failures = failures_of(0, 1)
    assert failures.reason([0, 1], {}, 0) is None
    for now in range(5, 1000, 5):
        failures.add(1, MISSING)
        assert failures.reason([0, 1], {0: 4}, now) is None
    # The executor of slot 0 is lost, and only the other one is left.
    failures.add(0, SlotFailure("its executor was lost"))
    assert failures.reason([0, 1], {}, 1000) is None
    failures.add(0, MISSING)
    assert failures.reason([0, 1], {}, 1000) is None
    assert failures.reason([0, 1], {}, 1029) is None
    assert failures.reason([0, 1], {}, 1030) == "no package"


def test_a_task_that_began_within_the_half_minute_is_waited_for():
    failures = failures_of(0, 1)
    assert failures.reason([0, 1], {}, 0) is None
    assert failures.reason([0, 1], {0: 29}, 31) is None, "it may run"
    assert failures.reason([0, 1], {0: 29}, 39) is None, "it runs"
    assert failures.reason([0, 1], {}, 40) is None, "the half minute begins anew"
    assert failures.reason([0, 1], {0: 70.1}, 70.2) == "no package", "a later task would delay the end for ever"


def test_a_slot_has_failed_until_it_runs():
    failures = failures_of(0)
    assert failures.has_failed(0, 0) and failures.has_failed(0, 9.9)
    assert not failures.has_failed(0, 10)
    assert not failures.has_failed(1, 0)
    failures.add_served(0)
    assert not failures.has_failed(0, 0)


def test_another_failure_of_a_slot_leaves_hope():
    failures = failures_of(0, 1)
    failures.add(1, SlotFailure("its executor was lost"))
    assert failures.reason([0, 1], {}, 0) is None
    assert failures.reason([0, 1], {}, 100) is None


def test_a_slot_that_has_run_leaves_hope():
    failures = PermanentFailures()
    failures.add_served(0)
    failures.add(0, MISSING)
    assert failures.reason([0], {}, 0) is None
    assert failures.reason([0], {}, 100) is None


class Clock:
    """A clock that tests set, in place of the module ``time``."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def held(slots: Slots, slot: int, since: float, until: float | None = None) -> Held:
    return Held(slots.group(slot), "1", "b", 7, since, until)


def test_a_slot_that_failed_counts_as_granted_once_it_runs(monkeypatch: pytest.MonkeyPatch):
    """Slot 0 fails on one executor, and is held by another one. No Spark job is submitted."""
    clock, now_held = Clock(), list[Held]()
    monkeypatch.setattr("elasticrun.spark.slots.time", clock)
    monkeypatch.setattr(Slots, "_thread", lambda self, slot: threading.Thread())
    slots = Slots(None, TaskSpec((), "", 0), 2, print, print, lambda group: [], lambda: now_held)
    assert not slots._is_hopeless(0, MISSING)
    now_held.append(held(slots, 0, since=1))
    clock.now = 10.9
    assert slots.granted(now_held) == 0, "its task may fail as well"
    clock.now = 11
    assert slots.granted(now_held) == 1
    assert slots.granted([held(slots, 0, since=1, until=2)]) == 0, "a task that has failed"
    assert slots.granted([held(slots, 0, since=1, until=2), *now_held]) == 1
    assert slots.granted([held(slots, 1, since=11), Held("other", "1", "b", 8, 0)]) == 1
    assert not slots._is_hopeless(1, MISSING)
    clock.now = 60
    assert not slots._is_hopeless(1, MISSING), "slot 0 runs"
    assert slots.unusable is None
    now_held.clear()
    assert not slots._is_hopeless(0, MISSING)
    clock.now = 90
    assert slots._is_hopeless(1, MISSING)
    assert slots.unusable == "no package"
    assert not slots._is_hopeless(0, MISSING), "the job is ended once"


def raised_by_task(error: BaseException) -> Exception:
    """The exception of a Spark job whose task raised ``error``: it has the traceback of the task as text."""
    kind = f"{type(error).__module__}." if type(error).__module__ != "builtins" else ""
    return Exception(
        f"Job aborted: \nTraceback (most recent call last):\n  File x\n{kind}{type(error).__name__}: {error}\n\n"
    )


def test_a_program_that_cannot_be_run_is_permanent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "elasticrun"
    program.touch(mode=0o644)
    monkeypatch.setenv("ELASTICRUN_BIN", os.fspath(program))
    monkeypatch.setattr("elasticrun.spark.task._environment", dict)
    with pytest.raises(UnusableExecutorError, match="noexec") as raised:
        next(iter(serve(TaskSpec((), "", 0), [])))
    failure = slot_failure(raised_by_task(raised.value))
    assert failure.permanent
    assert failure.text.startswith(f"{program} cannot be run on ")


def test_an_executor_that_is_lost_is_not_permanent():
    assert slot_failure(raised_by_task(ValueError("x"))) == SlotFailure("ValueError: x")
    assert slot_failure(Exception("ExecutorLostFailure")) == SlotFailure("ExecutorLostFailure")
    assert slot_failure(raised_by_task(ModuleNotFoundError("No module named 'elasticrun'"))).permanent
