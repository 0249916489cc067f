"""A replacement for the slot of a decommissioned executor is requested before the slot is released."""

from __future__ import annotations

from cluster import eventually
from jobs import Bench
from pyspark import SparkContext


def test_a_job_that_needs_all_its_slots_goes_on_elsewhere(bench: Bench, spark: SparkContext):
    job = bench.run(spark, num_proc=2, min_num_proc=2, elastic_timeout="60s")
    before = bench.training(2)
    leaves = before[-1].machine
    bench.cluster.decommission_worker(leaves)
    try:
        eventually(lambda: leaves not in {step.machine for step in bench.training(2)}, "it trains elsewhere")
        bench.finish()
        assert len(job.results()) == 2
    finally:
        # It is alive, and takes no executors.
        bench.cluster.remove_worker(leaves)
