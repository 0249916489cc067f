"""What the listener keeps of Spark's events; no cluster is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from elasticrun.spark.listener import Held, Listener


def job_start(job: int, stage: int, group: str | None) -> Any:
    return SimpleNamespace(
        jobId=lambda: job,
        stageIds=lambda: SimpleNamespace(head=lambda: stage),
        properties=lambda: SimpleNamespace(getProperty=lambda key: group),
    )


def job_end(job: int) -> Any:
    return SimpleNamespace(jobId=lambda: job)


def removed(executor: str) -> Any:
    return SimpleNamespace(executorId=lambda: executor, reason=lambda: "killed")


def test_running_jobs_are_known_by_their_group():
    listener = Listener(SimpleNamespace())
    for job, group in ((1, "a"), (2, "b"), (3, None)):
        listener.onJobStart(job_start(job, 10 + job, group))
    assert (listener.jobs("a"), listener.jobs("b"), listener.jobs("c")) == ([1], [2], [])
    listener.onJobEnd(job_end(1))
    assert listener.jobs("a") == []


def task(attempt: int) -> Any:
    info = SimpleNamespace(taskId=lambda: attempt, executorId=lambda: "1", host=lambda: "b")
    return SimpleNamespace(stageId=lambda: 10, taskInfo=lambda: info)


def test_held_slots_have_their_times(monkeypatch: pytest.MonkeyPatch):
    clock = SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr("elasticrun.spark.listener.time", clock)
    listener = Listener(SimpleNamespace())
    listener.onJobStart(job_start(1, 10, "a"))
    listener.onTaskStart(task(7))
    [held] = listener.held()
    assert held == Held("a", "1", "b", 7, 100.0)
    assert held.seconds(104.0) == 4
    clock.monotonic = lambda: 102.0
    listener.onTaskEnd(task(7))
    listener.onTaskStart(task(8))
    assert listener.held() == [Held("a", "1", "b", 8, 102.0)]
    assert [(held.attempt, held.seconds(103.0)) for held in listener.held(within=1)] == [(7, 2), (8, 1)]
    clock.monotonic = lambda: 103.0
    assert [held.attempt for held in listener.held(within=1)] == [8]


def test_a_task_ends_with_its_executor(monkeypatch: pytest.MonkeyPatch):
    clock = SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr("elasticrun.spark.listener.time", clock)
    listener = Listener(SimpleNamespace())
    listener.onJobStart(job_start(1, 10, "a"))
    listener.onTaskStart(task(7))
    clock.monotonic = lambda: 112.0
    listener.onExecutorRemoved(removed("1"))
    assert listener.held() == []
    assert listener.held(within=1) == [Held("a", "1", "b", 7, 100.0, 112.0)]


def test_nothing_grows_with_the_jobs_of_a_slot():
    listener = Listener(SimpleNamespace())
    for job in range(100):
        listener.onJobStart(job_start(job, job, "a"))
        listener.onJobEnd(job_end(job))
        listener.onExecutorRemoved(removed(str(job)))
    assert not listener._jobs and not listener._groups
    assert listener.last_removed == "executor 99: killed"
