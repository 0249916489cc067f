"""Too few slots: the job ends at its elastic timeout and explains why Spark granted no more."""

from __future__ import annotations

import pytest
from cluster import HOSTS, eventually
from jobs import Bench
from pyspark import SparkContext

from elasticrun.errors import TooFewWorkersError

#: A job for which there will not be enough slots.
PROGRAM = """
    sc = context(**{settings})
    while sc._jsc.sc().getExecutorMemoryStatus().size() - 1 < {executors}:
        time.sleep(0.02)
    try:
        wanted = dict(num_proc={num_proc}, max_num_proc={num_proc}, elastic_timeout={timeout!r})
        elasticrun.spark.run(train, (FOLDER,), env=MARK, **wanted)
    except elasticrun.errors.TooFewWorkersError as error:
        print("WHY", str(error).splitlines()[-1])
"""


def program(num_proc: int, executors: int = 0, timeout: str = "5s", **settings: object) -> str:
    """Its text. The job begins once there are so many executors."""
    keys = {key.replace("__", "."): value for key, value in settings.items()}
    return PROGRAM.format(settings=keys, num_proc=num_proc, executors=executors, timeout=timeout)


def why(bench: Bench, text: str) -> str:
    """The output of a program that has ended."""
    return bench.program(text).succeed().split("WHY ")[1].splitlines()[0]


def test_it_says_how_many_slots_are_granted_and_that_no_core_is_free(bench: Bench, spark: SparkContext):
    with pytest.raises(TooFewWorkersError) as raised:
        bench.run(spark, num_proc=7, elastic_timeout="5s").results()
    assert "6 of 7 slot(s) granted, 1 pending, 3 executor(s) with 6 core(s), 0 of them free" in str(raised.value)


def test_an_executor_that_no_worker_has_memory_for_is_named(bench: Bench, free: None):
    job = bench.program(program(1, timeout="15s", executor__memory="64g"))
    assert "waiting for 1 slot(s) of Spark: 0 of 1 slot(s) granted" in job.until("waiting for"), "said meanwhile"
    said = job.until("WHY ")
    job.succeed()
    assert "0 of 1 slot(s) granted, 1 pending, 0 executor(s)" in said
    assert "no worker of the cluster has the free cores and the memory of an executor" in said
    assert "spark.executor.memory=64g" in said


def test_a_cluster_whose_cores_others_hold_is_named(bench: Bench, spark: SparkContext):
    eventually(lambda: bench.cluster.used_cores() == 6, "the context of this process holds all cores")
    said = why(bench, program(1))
    assert "0 executor(s) with 0 core(s), 0 of them free, no worker of the cluster has the free cores" in said


def test_the_bound_of_dynamic_allocation_is_named(bench: Bench, free: None):
    dynamic = {"enabled": "true", "shuffleTracking.enabled": "true", "initialExecutors": 1, "maxExecutors": 1}
    settings = {f"dynamicAllocation.{key}": value for key, value in dynamic.items()}
    said = why(bench, program(4, executors=1, **settings, executor__cores=2))
    assert "2 of 4 slot(s) granted, 2 pending, 1 executor(s)" in said
    assert "dynamic allocation stops at spark.dynamicAllocation.maxExecutors=1" in said


def test_executors_that_spark_excludes_are_named_and_its_settings_warned_of(bench: Bench, free: None):
    """One task of a job of the program's own fails, so Spark excludes the executor where it did."""
    job = bench.program("""
        sc = context(**{
            "excludeOnFailure.enabled": "true", "excludeOnFailure.application.maxFailedTasksPerExecutor": 1,
            "speculation": "true",
        })
        while sc._jsc.sc().getExecutorMemoryStatus().size() - 1 < 3:
            time.sleep(0.02)
        def fails_once(rows):
            try:
                os.close(os.open(FOLDER + "/failed", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return rows
            raise ValueError("the first of all tasks")
        assert sc.parallelize(range(6), 6).mapPartitions(fails_once).count() == 6
        try:
            elasticrun.spark.run(train, (FOLDER,), num_proc=6, elastic_timeout="10s", env=MARK)
        except elasticrun.errors.TooFewWorkersError as error:
            print("WHY", str(error).splitlines()[-1])
    """)
    said = job.until("WHY ")
    assert "4 of 6 slot(s) granted, 2 pending, 3 executor(s) with 6 core(s)" in said
    assert "excluded after failures: executors on 127.0.0." in said
    text = job.succeed()
    assert "warning: spark.excludeOnFailure.enabled is on" in text
    assert "warning: spark.speculation is on" in text


def test_a_job_that_loses_all_hosts_ends_at_its_time_out_and_says_so(bench: Bench, free: None):
    job = bench.program(program(4, executors=3, timeout="15s"))
    bench.training(4)
    for host in HOSTS:
        bench.cluster.remove_worker(host)
    said = job.until("WHY ")
    assert "0 of 4 slot(s) granted, 4 pending, 0 executor(s)" in said
    assert "lost last: executor" in said
    assert "failed: 0 usable slots, 4 needed, for 15 s (--elastic-timeout)" in job.succeed()
