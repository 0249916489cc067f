"""Results, and what workers know of their neighbours."""

from __future__ import annotations

import elasticrun.spark
import pytest
import training
from cluster import HOSTS, TAG
from jobs import Bench
from pyspark import SparkContext


@pytest.mark.quick
def test_results_come_by_rank(bench: Bench, spark: SparkContext):
    ends = bench.run(spark, num_proc=3, kwargs={"last": 3}).results()
    assert [end.rank for end in ends] == [0, 1, 2]
    assert {(end.size, end.step) for end in ends} == {(3, 3)}


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
    with pytest.raises(ValueError, match="stdout: not supported"):
        elasticrun.spark.run_elastic(training.train, (str(bench.folder),), num_proc=1, stdout=object())


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
