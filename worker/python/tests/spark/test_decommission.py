"""Executors that Spark takes back in good order are left at a common commit."""

from __future__ import annotations

import os
import signal

import pytest
from jobs import Bench
from pyspark import SparkContext


@pytest.mark.quick
def test_a_decommissioned_executor_is_drained(bench: Bench, spark: SparkContext, capfd):
    job = bench.run(spark, num_proc=6, min_num_proc=2)
    before = bench.training(6)
    leaves = before[-1].machine
    executor = next(pid for pid, host in bench.cluster.executors().items() if host == leaves)
    os.kill(executor, signal.SIGPWR)
    after = bench.training(4, after=before[-1].at)
    stay = {step.pid for step in before if step.machine != leaves}
    assert {step.pid for step in after} == stay
    bench.each_step_was_done_once()
    bench.finish()
    job.results()
    said = capfd.readouterr().err
    assert "failed" not in said.replace("failed in", ""), said
