"""What is given, and what is wrong with it; no cluster is needed for most."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import training
from jobs import Bench
from pyspark import SparkContext, SparkFiles

import elasticrun.spark
from elasticrun.errors import ElasticrunError, WorkerFailedError
from elasticrun.spark.binary_distribution import DistributedBinary
from elasticrun.spark.counts import Counts


def counts(given: tuple[int | None, ...], parallelism: int = 4, **spark: object) -> tuple[int, int, int]:
    keys = {f"spark.{key.replace('__', '.')}": str(value) for key, value in spark.items()}
    found = Counts.from_settings(keys.get, parallelism, *given)
    return found.num_proc, found.min_num_proc, found.max_num_proc


DYNAMIC = {"dynamicAllocation__enabled": "true"}
BOUNDS = {
    **DYNAMIC,
    "dynamicAllocation__minExecutors": 1,
    "dynamicAllocation__initialExecutors": 2,
    "dynamicAllocation__maxExecutors": 5,
}


@pytest.mark.parametrize(
    ("given", "spark", "found"),
    [
        ((3, None, None), {}, (3, 3, 3)),
        ((3, 2, 8), {}, (3, 2, 8)),
        ((None, 2, 8), {}, (2, 2, 8)),
        ((None, None, None), {}, (4, 4, 4)),
        ((None, None, None), {"default__parallelism": 6}, (6, 6, 6)),
        ((None, None, None), BOUNDS, (2, 1, 5)),
        ((3, None, None), BOUNDS, (3, 1, 5)),
        ((None, 3, 4), BOUNDS, (3, 3, 4)),
        ((2, 1, 4), DYNAMIC, (2, 1, 4)),
    ],
)
def test_counts_come_from_the_caller_or_from_spark(given, spark, found):
    assert counts(given, **spark) == found


@pytest.mark.parametrize(
    ("given", "spark"),
    [((2, 3, 4), {}), ((5, 1, 4), {}), ((0, None, None), {}), ((2, 0, 4), {}), ((None, None, None), DYNAMIC)],
)
def test_counts_that_make_no_sense_are_refused(given, spark):
    with pytest.raises(ValueError, match="max_num_proc"):
        counts(given, **spark)


def test_without_a_context_there_is_no_job(free: None):
    with pytest.raises(ElasticrunError, match="no active SparkContext"):
        elasticrun.spark.run(print, num_proc=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("hosts", "a:1"), ("aws_asg", "g"), ("gcp_mig", "g"), ("k8s", "app=x"), ("slurm", True), ("spark", "yarn")],
)
def test_hosts_are_not_given(bench: Bench, spark: SparkContext, name: str, value: object):
    with pytest.raises(ValueError, match=f"{name}: not in elasticrun.spark.run"):
        bench.run(spark, num_proc=1, **{name: value}).results()


def test_an_unknown_keyword_is_refused_as_python_does(bench: Bench, spark: SparkContext):
    with pytest.raises(TypeError, match="unexpected keyword argument 'spare': did you mean spares?"):
        bench.run(spark, num_proc=1, spare=1).results()


def test_a_function_that_cannot_be_pickled_is_named(bench: Bench, spark: SparkContext):
    lock = threading.Lock()

    def locked(folder: str) -> bool:
        return lock.locked()

    with pytest.raises(TypeError, match="locked or its arguments cannot be pickled"):
        bench.run(spark, num_proc=1, fn=locked).results()


def test_a_result_that_cannot_be_pickled_is_named(bench: Bench, spark: SparkContext):
    with pytest.raises(WorkerFailedError, match="what returns_a_lock returned cannot be pickled"):
        bench.run(spark, num_proc=1, fn=training.returns_a_lock).results()


def test_an_exception_of_a_worker_is_quoted(bench: Bench, spark: SparkContext):
    with pytest.raises(WorkerFailedError, match="KeyError: 'mine'") as failed:
        bench.run(spark, num_proc=2, fn=training.fails).results()
    assert repr(failed.value.__cause__) == "KeyError('mine')"


def test_two_jobs_in_one_context(bench: Bench, spark: SparkContext):
    one, other = (bench.run(spark, num_proc=2, kwargs={"last": 5}) for _ in range(2))
    assert [end.rank for end in one.results()] == [0, 1]
    assert [end.rank for end in other.results()] == [0, 1]


def test_failed_slots_may_be_left_for_good(bench: Bench, spark: SparkContext):
    job = bench.run(spark, num_proc=2, min_num_proc=1, blacklist="forever")
    victim = bench.training(2)[-1]
    os.kill(victim.pid, signal.SIGKILL)
    # Past the cooldown that it would have: the longest is 5 s.
    alone = bench.training(1, count=800)
    assert alone[0].at - victim.at > 5
    bench.finish()
    assert len(job.results()) == 1


def test_a_program_that_is_shipped_is_what_runs(bench: Bench, spark: SparkContext):
    job = bench.run(spark, num_proc=2, ship_binary=True)
    bench.training(2)
    services = [words for words in bench.cluster.left().values() if "task-service" in words]
    assert services and all("elasticrun-" in words.split()[0] for words in services), services
    bench.finish()
    assert len(job.results()) == 2


def test_a_program_with_the_wrong_hash_is_not_run(tmp_path, monkeypatch):
    (tmp_path / "elasticrun-1").write_bytes(b"something else")
    monkeypatch.setattr(SparkFiles, "get", lambda name: os.fspath(tmp_path / name))
    with pytest.raises(RuntimeError, match="elasticrun-1 on this executor has the hash .* not run"):
        DistributedBinary("elasticrun-1", "00" * 32).find()
