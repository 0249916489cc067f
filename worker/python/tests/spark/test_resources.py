"""GPUs that Spark gives to tasks."""

from __future__ import annotations

import ast

from cluster import HOSTS
from jobs import Bench


def test_each_worker_sees_the_gpu_of_its_task_alone(bench: Bench, free: None):
    text = bench.program("""
        sc = context(**{
            "executor.cores": 2, "executor.resource.gpu.amount": 2, "task.resource.gpu.amount": 1,
        })
        def devices():
            end = train(FOLDER, last=3)
            return end.machine, os.environ["CUDA_VISIBLE_DEVICES"]
        print("DEVICES", elasticrun.spark.run(devices, num_proc=6, env=MARK))
    """).succeed()
    devices = ast.literal_eval(text.split("DEVICES ")[1].splitlines()[0])
    assert sorted(devices) == [(host, gpu) for host in HOSTS for gpu in ("0", "1")]
