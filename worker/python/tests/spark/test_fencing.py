"""A slot has one live worker, also when Spark starts it twice."""

from __future__ import annotations

import os
import signal

from cluster import eventually
from jobs import Bench

#: Spark gives an executor up that is silent for ten seconds, not for two minutes.
PROGRAM = """
    sc = context(**{
        "network.timeout": "10s", "network.timeoutInterval": "2s", "executor.heartbeatInterval": "2s",
    })
    def work():
        return train(FOLDER)
    print("ENDS", len(elasticrun.spark.run(work, num_proc=4, min_num_proc=1, env=MARK)))
"""


def test_an_executor_that_is_stopped_leaves_one_live_worker_a_slot(bench: Bench, free: None):
    program = bench.program(PROGRAM)
    before = bench.training(4)
    victim = before[-1]
    executor = next(pid for pid, host in bench.cluster.executors().items() if host == victim.machine)
    stopped = {step.slot: step for step in before if step.machine == victim.machine}
    os.kill(executor, signal.SIGSTOP)

    def replaced() -> bool:
        newest = {step.slot: step for step in bench.steps()}
        return all(newest[slot].host != step.host for slot, step in stopped.items())

    # The executor's Python does not stop with it, so the old workers train until the new ones come.
    eventually(replaced, "its slots have newer attempts")
    after = bench.training(4, after=bench.steps()[-1].at)
    assert len({step.slot for step in after}) == 4
    for step in stopped.values():
        eventually(lambda pid=step.pid: not os.path.exists(f"/proc/{pid}"), "the older is ended", within=10)
    left = bench.cluster.left().items()
    # The command line of the driver contains that of its workers.
    workers = [pid for pid, words in left if "elasticrun._function_worker" in words and "elasticrun run" not in words]
    assert sorted(workers) == sorted(step.pid for step in after)
    bench.finish()
    program.until("ENDS 4")
    program.succeed()
