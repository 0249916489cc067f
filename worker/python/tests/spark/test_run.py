"""Results, and what workers know of their neighbours."""

from __future__ import annotations

import os
import signal

import pytest
import training
from cluster import HOSTS, TAG, eventually
from jobs import Bench, Running
from pyspark import SparkContext

import elasticrun.spark


@pytest.mark.quick
def test_results_come_by_rank(bench: Bench, spark: SparkContext):
    ends = bench.run(spark, num_proc=3, kwargs={"last": 3}).results()
    assert [end.rank for end in ends] == [0, 1, 2]
    assert {(end.size, end.step) for end in ends} == {(3, 3)}


def test_results_come_back_by_value(bench: Bench, spark: SparkContext):
    class Answer:
        pass

    def answers(folder: str) -> Answer:
        return Answer()

    assert [type(result) for result in bench.run(spark, num_proc=2, fn=answers).results()] == [Answer, Answer]
    (result,) = bench.run(spark, num_proc=1, fn=training.closes_over).results()
    assert result() == str(bench.folder)


def test_workers_of_one_machine_have_local_ranks(bench: Bench, spark: SparkContext):
    ends = bench.run(spark, num_proc=6, kwargs={"last": 3}).results()
    assert {end.local_size for end in ends} == {2}
    places = sorted((end.machine, end.local_rank) for end in ends)
    assert places == [(host, place) for host in HOSTS for place in (0, 1)]


def test_the_names_of_horovod_run_a_job(bench: Bench, spark: SparkContext):
    env = {TAG: bench.cluster.tag}
    ends = elasticrun.spark.run_elastic(
        training.train, (str(bench.folder),), {"last": 3}, num_proc=2, min_np=1, max_np=2, env=env, start_timeout=60
    )
    assert [(end.rank, end.size, end.step) for end in ends] == [(0, 2, 3), (1, 2, 3)]
    with pytest.raises(ValueError, match="stdout: expected None or sys.stdout"):
        elasticrun.spark.run_elastic(training.train, (str(bench.folder),), num_proc=1, stdout=object())


def test_a_spare_waits_in_a_slot_of_its_own(bench: Bench, spark: SparkContext):
    def workers() -> set[int]:
        return {
            pid
            for pid, words in bench.cluster.processes().items()
            if "python -c from elasticrun._function_worker" in words
        }

    job = bench.run(spark, num_proc=2, spares=1)
    before = bench.training(2)
    eventually(lambda: len(workers()) == 3, "the spare has started")
    [spare] = workers() - {step.pid for step in before}
    os.kill(before[1].pid, signal.SIGKILL)
    after = bench.training(2, after=before[-1].at)
    assert {step.pid for step in after} == {before[0].pid, spare}
    bench.finish()
    assert [end.rank for end in job.results()] == [0, 1]


def test_slots_are_in_the_scheduler_pool_of_the_caller(bench: Bench, spark: SparkContext):
    def run() -> list[training.End]:
        spark.setLocalProperty("spark.scheduler.pool", "training")
        ends: list[training.End] = elasticrun.spark.run(
            training.train, (str(bench.folder),), num_proc=2, env=bench.mark, spark_context=spark
        )
        return ends

    job = Running(run)
    bench.training(2)
    stages = spark._jsc.sc().statusStore().activeStages()
    assert [stages.apply(index).schedulingPool() for index in range(stages.size())] == ["training"] * 2
    bench.finish()
    assert len(job.results()) == 2


def test_a_wrong_number_of_spares_is_named(spark: SparkContext):
    for wrong in ("many", -1, 1.5):
        with pytest.raises(ValueError, match=f"spares {wrong!r}: expected a number of slots"):
            elasticrun.spark.run(training.train, num_proc=1, spares=wrong)


def test_spark_calls_nobody_once_a_job_has_ended(bench: Bench, spark: SparkContext):
    """What stayed with Spark would be called for each event, and after the end of this process in vain."""

    def listeners() -> int:
        found: int = spark._jsc.sc().listenerBus().listeners().size()
        return found

    before = listeners()
    job = bench.run(spark, num_proc=2)
    bench.training(2)
    assert listeners() == before + 1
    bench.finish()
    job.results()
    assert listeners() == before


def test_a_master_on_this_machine_alone_runs_a_job(bench: Bench, free: None):
    """In local mode there is no executor to ask for the host: it is this machine."""
    text = bench.program("""
        sc = context("local[2]")
        print("ENDS", elasticrun.spark.run(train, (FOLDER, 3), num_proc=2, env=MARK))
        sc.stop()
    """).succeed()
    assert "End(rank=0, size=2, local_rank=0, local_size=2" in text.split("ENDS ")[1]
