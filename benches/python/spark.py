"""Measures the loss of a Spark executor on a real standalone cluster of three machines with two cores each.

`VENV=spark35 benches/python.sh spark.py [--kills N] [--ends N]`. Prints a table; the last line is JSON.

A kill: six workers have committed three steps of 10 ms. One executor, each in turn, gets SIGKILL, and its two workers die
with it. The first time ends when the last of the four survivors has committed its next step. The second ends when both slots
are back and have committed a step, for which Spark must start an executor. An end: six workers train and eight slots are
pending. The time runs from the request to end until `run` has returned, when no job of Spark is left.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "worker/python/tests" / folder) for folder in ("spark", "")]

from cluster import HOSTS, Cluster, context, eventually
from jobs import Bench
from pyspark import SparkContext, __version__
from test_failures import kill_executor_of
from training import Step


def kills(bench: Bench, spark: SparkContext, trials: int) -> tuple[list[float], list[float]]:
    """For each kill: seconds until the survivors' next step, and until the slots are back."""
    survivors, slots = [], []
    job = bench.run(spark, num_proc=6, min_num_proc=2)
    before = bench.training(6)
    for trial in range(trials):
        machine = sorted({step.machine for step in before})[trial % 3]
        lost = [step for step in before if step.machine == machine]
        stay = {step.pid for step in before} - {step.pid for step in lost}
        at = kill_executor_of(bench, lost[0])

        def of_survivors(step: Step) -> bool:
            return step.pid in stay and step.round > lost[0].round

        def of_slots(step: Step) -> bool:
            return step.slot in {one.slot for one in lost} and step.pid not in {one.pid for one in lost}

        survivors.append(last_of(bench, of_survivors, len(stay), at) - at)
        slots.append(last_of(bench, of_slots, len(lost), at) - at)
        before = bench.training(6, after=at + slots[-1])
    bench.finish()
    assert len(job.results()) == 6
    return survivors, slots


def last_of(bench: Bench, wanted: Callable[[Step], bool], count: int, after: float) -> float:
    """The time at which `count` workers have each made a first step of a kind."""

    def look() -> float:
        first: dict[int, float] = {}
        for step in bench.steps():
            if step.at > after and wanted(step):
                first.setdefault(step.pid, step.at)
        return max(first.values()) if len(first) >= count else 0.0

    return eventually(look, f"{count} workers train on")


def end(bench: Bench, spark: SparkContext) -> float:
    """Seconds from the request to end until nothing of a job with pending slots is left."""
    job = bench.run(spark, num_proc=6, max_num_proc=14)
    bench.training(6)
    assert len(spark.statusTracker().getActiveJobsIds()) == 14
    at = time.monotonic()
    bench.finish()
    job.results()
    took = time.monotonic() - at
    assert not spark.statusTracker().getActiveJobsIds()
    return took


def millis(seconds: list[float]) -> tuple[float, float, float]:
    """Median, 99th percentile and maximum in milliseconds."""
    ordered = sorted(seconds)
    nearest = ordered[round(0.99 * (len(ordered) - 1))]
    return tuple(round(value * 1000, 1) for value in (statistics.median(ordered), nearest, ordered[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ends", type=int, default=5)
    options = parser.parse_args()
    cluster = Cluster()
    with tempfile.TemporaryDirectory() as folder:
        try:
            for host in HOSTS:
                cluster.add_worker(host)
            cluster.enter()
            spark = context(cluster.master)

            def bench(name: str) -> Bench:
                made = Path(folder, name)
                made.mkdir()
                return Bench(cluster, made)

            survivors, slots = map(millis, kills(bench("kills"), spark, options.kills))
            ends = millis([end(bench(f"end{trial}"), spark) for trial in range(options.ends)])
            spark.stop()
        finally:
            cluster.stop()
    print(f"{'Spark ' + __version__:44} {'trials':>6} {'median':>10} {'p99':>10} {'max':>10}")
    for name, trials, figures in (
        ("executor killed -> survivors' next step", options.kills, survivors),
        ("executor killed -> both slots train again", options.kills, slots),
        ("end with eight pending slots", options.ends, ends),
    ):
        print(f"{name:44} {trials:6} " + " ".join(f"{figure:7.1f} ms" for figure in figures))
    figures = {"kill_median_ms": survivors[0], "kill_p99_ms": survivors[1], "kill_max_ms": survivors[2]}
    figures |= {"slot_back_median_ms": slots[0], "slot_back_max_ms": slots[2], "end_with_pending_ms": ends[0]}
    print(json.dumps({"bench": "spark", "spark": __version__, "kills": options.kills, **figures}))


main()
