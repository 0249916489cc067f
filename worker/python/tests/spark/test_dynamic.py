"""Dynamic allocation grows a job, and takes its executors back after it."""

from __future__ import annotations

import time

from cluster import eventually
from jobs import Bench

#: A context that begins with one executor and may have three.
PROGRAM = """
    import signal
    sc = context(**{
        "dynamicAllocation.enabled": "true",
        "dynamicAllocation.shuffleTracking.enabled": "true",
        "dynamicAllocation.minExecutors": 0,
        "dynamicAllocation.initialExecutors": 1,
        "dynamicAllocation.maxExecutors": 3,
        "dynamicAllocation.executorIdleTimeout": "2s",
        "executor.cores": 2,
    })
    ends = elasticrun.spark.run(train, (FOLDER,), num_proc=1, min_num_proc=1, max_num_proc=6, env=MARK)
    print("ENDS", len(ends))
    signal.pause()
"""


def test_it_grows_and_executors_are_released_after_it(bench: Bench, free: None):
    program = bench.program(PROGRAM)
    bench.training(6)
    first = [step for step in bench.steps() if step.size < 6]
    assert first, "it began before all were there"
    assert bench.cluster.used_cores() == 6
    bench.finish()
    program.until("ENDS 6")
    at = time.monotonic()
    eventually(lambda: bench.cluster.used_cores() == 0, "executors are released", within=15)
    print(f"\nexecutors were released {time.monotonic() - at:.1f} s after the job")
