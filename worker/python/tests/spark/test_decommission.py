"""Executors that Spark decommissions are drained."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from jobs import Bench
from pyspark import SparkContext

from elasticrun.spark.decommission import Decommission
from elasticrun.spark.listener import Held


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


class _OneOfNoName:
    """Slots and a listener with one executor without a valid name, for which Spark's scheduler raises an exception."""

    def held(self) -> list[Held]:
        return [Held(group="elasticrun", executor=None, machine="127.0.0.2", attempt=1, since=0.0)]  # type: ignore[arg-type]

    def slot_of_group(self, group: str) -> int:
        return 0


def test_what_spark_will_not_answer_is_said_once(spark: SparkContext):
    said: list[str] = []
    one: Any = _OneOfNoName()
    decommission = Decommission(spark, one, one, driver=None, report=said.append)  # type: ignore[arg-type]
    for _ in range(3):
        assert decommission.poll() is not None, "it asks again"
    [line] = said
    assert line.startswith("cannot ask Spark which executors it decommissions: ") and "NullPointer" in line
