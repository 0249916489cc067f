"""When no slot can ever be used; no cluster is needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticrun.spark.error_text import SlotFailure, UnusableExecutorError, slot_failure
from elasticrun.spark.permanent_failures import PermanentFailures
from elasticrun.spark.task import TaskSpec, serve

MISSING = SlotFailure("no package", permanent=True)


def test_a_job_is_hopeless_once_all_slots_have_failed_for_good():
    failures = PermanentFailures()
    failures.add(0, MISSING)
    assert failures.reason([0, 1]) is None, "slot 1 waits or runs"
    failures.add(1, MISSING)
    assert failures.reason([0, 1]) == "no package"
    assert failures.reason([]) is None
    assert 0 in failures and 2 not in failures


def test_another_failure_of_a_slot_leaves_hope():
    failures = PermanentFailures()
    failures.add(0, MISSING)
    failures.add(1, MISSING)
    failures.add(1, SlotFailure("its executor was lost"))
    assert failures.reason([0, 1]) is None


def test_a_slot_that_has_run_leaves_hope():
    failures = PermanentFailures()
    failures.add_served()
    failures.add(0, MISSING)
    assert failures.reason([0]) is None


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
