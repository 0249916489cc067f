"""``elasticrun --spark MASTER``: the way without a program."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from cluster import SUBMIT
from elasticrun import _binary
from jobs import Bench

SCRIPT = """
import elasticrun as e
e.init()
state = e.ObjectState(total=0.0, step=0)

@e.elastic.run
def train(state):
    while state.step < 5:
        state.total += e.allreduce(1.0, e.Sum)
        state.step += 1
        state.commit()

train(state)
print("RANK", e.rank(), "OF", e.size(), "TOTAL", state.total)
"""


def elasticrun(bench: Bench, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **bench.cluster.environment(),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": SUBMIT,
    }
    return subprocess.run(
        [os.fspath(_binary.find()), *words],
        env=environment,
        cwd=bench.folder,
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.mark.quick
def test_a_script_runs_on_the_executors(bench: Bench, free: None):
    (bench.folder / "sub").mkdir()
    (bench.folder / "sub" / "train.py").write_text(SCRIPT)
    counts = ["-np", "2", "--min-np", "1", "--max-np", "3"]
    ended = elasticrun(bench, "--spark", bench.cluster.master, *counts, "python3", "sub/train.py")
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if "RANK" in line]
    assert [line.split("RANK")[1].split()[0] for line in sorted(lines)] == [str(rank) for rank in range(len(lines))]
    assert len(lines) >= 2, ended.stdout
    assert "succeeded" in ended.stderr


def test_spark_may_make_a_cluster_of_this_machine(bench: Bench, free: None):
    (bench.folder / "train.py").write_text(SCRIPT)
    counts = ["-np", "2", "--max-np", "2"]
    ended = elasticrun(bench, "--spark", "local-cluster[2,1,512]", *counts, "python3", "train.py")
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if "RANK" in line]
    assert sorted(line.split("RANK")[1].split()[0] for line in lines) == ["0", "1"], ended.stdout


def test_the_exit_code_is_that_of_the_job(bench: Bench, free: None):
    counts = ["-np", "1", "--max-np", "1"]
    ended = elasticrun(bench, "--spark", bench.cluster.master, *counts, "sh", "-c", "echo mine >&2; exit 3")
    assert ended.returncode == 1, ended.stderr
    assert "exit code 3" in ended.stderr and "mine" in ended.stderr
