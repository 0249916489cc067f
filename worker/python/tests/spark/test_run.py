"""Results, and what workers know of their neighbours."""

from __future__ import annotations

from cluster import HOSTS
from jobs import Bench
from pyspark import SparkContext


def test_results_come_by_rank(bench: Bench, spark: SparkContext):
    ends = bench.run(spark, num_proc=3, kwargs={"last": 3}).results()
    assert [end.rank for end in ends] == [0, 1, 2]
    assert {(end.size, end.step) for end in ends} == {(3, 3)}


def test_workers_of_one_machine_have_local_ranks(bench: Bench, spark: SparkContext):
    ends = bench.run(spark, num_proc=6, kwargs={"last": 3}).results()
    assert {end.local_size for end in ends} == {2}
    places = sorted((end.machine, end.local_rank) for end in ends)
    assert places == [(host, place) for host in HOSTS for place in (0, 1)]
