"""Horovod's own elastic examples on elasticrun: one line changed, hosts added, and a worker killed.

Their data sets cannot be downloaded in a test; `stand_ins` serves small digits under the names that the scripts use.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import checkout
import environment
from jobs import Job


def grow_and_kill(job: Job, trains: str) -> None:
    """Two workers train, two more join, one of these is killed, and two continue, to the end if that is soon.

    `trains` is what rank 0 prints again and again while it trains.
    """
    job.wait_for(trains)
    job.set_hosts(["localhost:2", "127.0.0.1:2"])
    # In one round or in two: newcomers may be ready at different times.
    job.wait_for(r"round \d+ started with 4 workers: workers added")
    seen = len(re.findall(trains, job.output))
    job.wait_for(trains, seen + 2)
    os.kill(job.workers("127.0.0.1")[-1], signal.SIGKILL)
    job.wait_for(r"round \d+ started with 2 workers: worker failed \(127.0.0.1")
    assert job.wait(600) == 0


def test_pytorch_mnist(source: Path, tmp_path: Path) -> None:
    script = checkout.moved(source / "examples/elastic/pytorch/pytorch_mnist_elastic.py", tmp_path)
    # The script shares its data among the workers that it found when it started, so newcomers count
    # fewer batches in an epoch than the others do, unless an epoch is one batch for all.
    command = ["python", str(script), "--batch-size", "750", "--epochs", "200", "--log-interval", "1"]
    with Job(tmp_path, command, environment.torch()) as job:
        grow_and_kill(job, r"\[0\]<stdout>:Train Epoch: \d+")
    accuracy = re.search(r"Test set: Average loss: [\d.]+, Accuracy: ([\d.]+)%", job.output)
    assert accuracy and float(accuracy[1]) > 80, job.output


def test_pytorch_synthetic_benchmark(source: Path, tmp_path: Path) -> None:
    script = checkout.moved(source / "examples/elastic/pytorch/pytorch_synthetic_benchmark_elastic.py", tmp_path)
    command = ["python", str(script), "--batch-size", "8", "--num-iters", "250"]
    with Job(tmp_path, command, environment.torch()) as job:
        grow_and_kill(job, r"\[0\]<stdout>:Iter #\d+")
    assert re.search(r"\[0\]<stdout>:Total img/sec on [24] CPU\(s\): [\d.]+", job.output), job.output


def test_tensorflow2_keras_mnist(source: Path, tmp_path: Path) -> None:
    script = checkout.moved(source / "examples/elastic/tensorflow2/tensorflow2_keras_mnist_elastic.py", tmp_path)
    with Job(tmp_path, ["python", str(script)], environment.tensorflow()) as job:
        grow_and_kill(job, r"\[0\]<stdout>:Epoch \d+/\d+")
    accuracy = re.findall(r"accuracy: ([\d.]+)", job.output)
    assert accuracy and float(accuracy[-1]) > 0.9, job.output


def test_tensorflow2_mnist(source: Path, tmp_path: Path) -> None:
    script = checkout.moved(source / "examples/elastic/tensorflow2/tensorflow2_mnist_elastic.py", tmp_path)
    with Job(tmp_path, ["python", str(script)], environment.tensorflow()) as job:
        grow_and_kill(job, r"\[0\]<stdout>:Step #\d+")
    loss = re.findall(r"Loss: ([\d.]+)", job.output)
    assert loss and float(loss[-1]) < 0.1, job.output
    assert (tmp_path / "checkpoints-1.index").exists()
