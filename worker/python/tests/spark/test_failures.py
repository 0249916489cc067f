"""Executors are lost, and the job continues."""

from __future__ import annotations

import os
import signal
import time

import pytest
from cluster import HOSTS, eventually, parent
from jobs import Bench
from pyspark import SparkContext
from training import Step


def kill_executor_of(bench: Bench, step: Step) -> float:
    """SIGKILL to the executor on the machine of a worker; when that was."""
    pid = next(pid for pid, host in bench.cluster.executors().items() if host == step.machine)
    at = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    return at


def survivors_next_step(bench: Bench, victim: Step, at: float) -> float:
    """Seconds until the first step of a round without the machine of the victim."""

    def look() -> list[Step]:
        gone = {s.round for s in bench.steps() if s.at > at and s.machine == victim.machine}
        return [s for s in bench.steps() if s.at > at and s.round > victim.round and s.round not in gone]

    return eventually(look, "survivors train on")[0].at - at


@pytest.mark.quick
def test_survivors_of_a_killed_executor_never_stop_and_its_slots_return(bench: Bench, spark: SparkContext):
    job = bench.run(spark, num_proc=6, min_num_proc=2)
    before = bench.training(6)
    victim = before[-1]
    at = kill_executor_of(bench, victim)
    took = survivors_next_step(bench, victim, at)
    after = bench.training(6, after=at + took)
    alive = {step.pid for step in before if step.machine != victim.machine}
    assert alive <= {step.pid for step in after}, "survivors are the same processes"
    lost = {step.slot for step in before if step.machine == victim.machine}
    assert {step.slot for step in after if step.pid not in alive} == lost, "the slots came back"
    bench.finish()
    assert [end.rank for end in job.results()] == list(range(6))
    print(f"\nfrom the kill of an executor to the survivors' next step: {took * 1000:.1f} ms")
    # Nobody waits for a timeout of heartbeats (5 s) or of Spark.
    assert took < 2


def test_a_slot_that_is_lost_six_times_returns_six_times(bench: Bench, spark: SparkContext):
    """Spark gives a task up after its fourth failure, and with it all the tasks of its job."""
    job = bench.run(spark, num_proc=2, min_num_proc=1)
    steps = bench.training(2)
    keeper, victim = steps
    for _ in range(6):
        bench_pid = victim.pid
        # The task's own Python, two above its worker: for Spark the task has failed.
        os.kill(parent(parent(bench_pid)), signal.SIGKILL)
        at = time.monotonic()
        eventually(lambda: any(s.at > at and s.size == 1 for s in bench.steps()), "one trains alone")
        steps = bench.training(2, after=at)
        victim = next(step for step in steps if step.slot == victim.slot)
        assert victim.pid != bench_pid
        assert keeper.pid in {step.pid for step in steps}, "the other one is the same process"
    bench.finish()
    assert len(job.results()) == 2


def test_a_job_starts_with_two_of_six_slots_and_grows_with_a_worker(bench: Bench, spark: SparkContext):
    for host in HOSTS[1:]:
        bench.cluster.remove_worker(host)
    job = bench.run(spark, num_proc=2, max_num_proc=6)
    first = bench.training(2)
    assert {step.machine for step in first} == {HOSTS[0]}
    bench.cluster.add_worker(HOSTS[1])
    grown = bench.training(4)
    assert {step.pid for step in first} <= {step.pid for step in grown}
    assert {step.machine for step in grown} == set(HOSTS[:2])
    bench.finish()
    assert len(job.results()) == 4


def test_a_lost_worker_of_spark_takes_its_executors_only(bench: Bench, spark: SparkContext):
    job = bench.run(spark, num_proc=6, min_num_proc=2)
    before = bench.training(6)
    at = time.monotonic()
    bench.cluster.remove_worker(HOSTS[2])
    after = bench.training(4, after=at)
    assert {step.pid for step in after} == {s.pid for s in before if s.machine != HOSTS[2]}
    bench.finish()
    assert len(job.results()) == 4
