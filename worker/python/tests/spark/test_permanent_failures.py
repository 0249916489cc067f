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
LOST = SlotFailure("its executor was lost")


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
    failures.add(0, LOST, 996)
    assert failures.reason([0, 1], {}, 1000) is None
    failures.add(0, MISSING)
    assert failures.reason([0, 1], {}, 1000) is None
    assert failures.reason([0, 1], {}, 2000) is None, "executors that can run tasks may come back"


def test_a_slot_that_has_run_and_lost_its_executor_leaves_hope():
    for ran, expected in ((9.9, "no package"), (10.0, None)):
        failures = failures_of(1)
        failures.add(0, SlotFailure("its executor was lost"), ran)
        failures.add(0, MISSING)
        assert failures.reason([0, 1], {}, 100) is None
        assert failures.reason([0, 1], {}, 200) == expected, ran


def test_a_task_that_began_within_the_half_minute_is_waited_for():
    failures = failures_of(0, 1)
    assert failures.reason([0, 1], {}, 0) is None
    assert failures.reason([0, 1], {0: 29}, 31) is None, "it may run"
    assert failures.reason([0, 1], {0: 30.1}, 31) == "no package", "a later task would delay the end for ever"
    assert failures.reason([0, 1], {0: 29}, 39) is None, "it runs"
    failures.add(0, LOST, 10)
    assert failures.reason([0, 1], {}, 1000) is None


def test_a_task_that_waited_long_for_its_files_and_could_not_run_leaves_no_hope():
    failures = failures_of(1)
    assert failures.reason([0, 1], {0: 0}, 12) is None
    failures.add(0, MISSING, 12)
    assert failures.reason([0, 1], {}, 12) is None
    assert failures.reason([0, 1], {}, 42) == "no package"


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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("elasticrun.spark.slots.time", clock)
    return clock


@pytest.fixture
def now_held() -> list[Held]:
    return []


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch, now_held: list[Held]) -> Slots:
    """Two slots that submit no Spark job."""
    monkeypatch.setattr(Slots, "_thread", lambda self, slot: threading.Thread())
    return Slots(None, TaskSpec((), "", 0), 2, print, print, lambda group: [], lambda: now_held)


def test_a_slot_that_failed_counts_as_granted_once_it_runs(slots: Slots, clock: Clock, now_held: list[Held]):
    """Slot 0 fails on one executor, and is held by another one."""
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


def test_a_job_that_no_slot_can_run_is_ended_once(slots: Slots, clock: Clock, now_held: list[Held]):
    assert not slots._is_hopeless(0, MISSING)
    assert not slots._is_hopeless(1, MISSING)
    now_held.append(held(slots, 0, since=1, until=10.9))
    clock.now = 40
    assert slots._is_hopeless(0, MISSING), "its task ran too short a time"
    assert slots.unusable == "no package"
    assert not slots._is_hopeless(1, MISSING)


def test_a_job_whose_only_slot_ran_and_lost_its_executor_waits(slots: Slots, clock: Clock, now_held: list[Held]):
    now_held.append(held(slots, 0, since=1))
    clock.now = 12
    assert not slots._is_hopeless(0, LOST), "the event of its end has not come"
    for slot in (0, 1):
        assert not slots._is_hopeless(slot, MISSING)
    now_held.clear()
    for now in (1000, 2000):
        clock.now = now
        assert not slots._is_hopeless(1, MISSING)
    assert slots.unusable is None


def test_a_task_that_ended_before_its_job_counts_as_run(slots: Slots, clock: Clock, now_held: list[Held]):
    now_held.append(held(slots, 0, since=1, until=12))
    clock.now = 13
    assert not slots._is_hopeless(0, LOST)
    for now in (13, 1000):
        clock.now = now
        assert not any(slots._is_hopeless(slot, MISSING) for slot in (0, 1))


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
