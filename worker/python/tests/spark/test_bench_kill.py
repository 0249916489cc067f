"""From the kill of an executor to the survivors' next committed step."""

from __future__ import annotations

import os
import statistics

from jobs import Bench
from pyspark import SparkContext
from test_failures import kill_executor_of, survivors_next_step

KILLS = int(os.environ.get("KILLS", "20"))


def test_bench_kill(bench: Bench, spark: SparkContext):
    job = bench.run(spark, num_proc=6, min_num_proc=2)
    took = []
    steps = bench.training(6)
    for kill in range(KILLS):
        # Each machine in turn, that of rank 0 among them.
        machine = sorted({step.machine for step in steps})[kill % 3]
        victim = next(step for step in steps if step.machine == machine)
        at = kill_executor_of(bench, victim)
        took.append(survivors_next_step(bench, victim, at) * 1000)
        steps = bench.training(6, after=at + took[-1] / 1000)
    bench.finish()
    assert len(job.results()) == 6
    took.sort()
    print(
        f"\nfrom the kill of an executor to the survivors' next step, {KILLS} times, steps of 10 ms:"
        f" median {statistics.median(took):.1f} ms, p99 {took[int(0.99 * (len(took) - 1) + 0.5)]:.1f}, max {took[-1]:.1f}"
    )
