"""The job's secret is nobody else's."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from cluster import PATIENCE, eventually
from jobs import Bench
from pyspark import SparkContext

from elasticrun import _binary
from elasticrun.spark.child import Driver, Listening


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[Listening]:
    """What drivers said to their parent."""
    said: list[Listening] = []
    listening = Driver.listening

    def hear(driver: Driver) -> Listening | None:
        found = listening(driver)
        if found is not None:
            said.append(found)
        return found

    monkeypatch.setattr(Driver, "listening", hear)
    return said


@pytest.mark.quick
def test_a_task_with_the_wrong_secret_is_refused(bench: Bench, spark: SparkContext, said: list[Listening]):
    job = bench.run(spark, num_proc=2)
    before = bench.training(2)
    task = {"machine": "127.0.0.9", "slot": 0, "attempt": 99}
    settings = {"driver": [f"127.0.0.1:{said[0].port}"], "secret": "00" * 32, "task": task}
    stranger = subprocess.Popen(
        [str(_binary.find()), "task-service"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert stranger.stdin is not None and stranger.stderr is not None
    # The pipe stays open: its end would be the end of the service.
    stranger.stdin.write(json.dumps(settings) + "\n")
    stranger.stdin.flush()
    assert stranger.wait(PATIENCE) == 2
    (line,) = stranger.stderr.readlines()
    assert "secret" in line
    stranger.stdin.close()
    stranger.stderr.close()
    after = bench.training(2, after=before[0].at)
    assert {step.pid for step in after} == {step.pid for step in before}
    bench.finish()
    assert len(job.results()) == 2


@pytest.mark.quick
def test_the_secret_is_in_no_command_line_and_in_no_log(bench: Bench, spark: SparkContext, said: list[Listening]):
    job = bench.run(spark, num_proc=4)
    bench.training(4)
    secret = said[0].secret
    processes = bench.cluster.processes()
    assert any("task-service" in words for words in processes.values())
    for pid, words in processes.items():
        assert secret not in words, words
        if pid != os.getpid():
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert secret.encode() not in environment, f"environment of {words}"
    assert secret not in json.dumps(bench.cluster.state())
    bench.finish()
    job.results()
    logs = [path for path in bench.cluster.directory.rglob("*") if path.is_file()]
    events = [path for path in logs if "events" in path.parts]
    eventually(lambda: any(path.stat().st_size for path in events), "events are logged")
    for path in logs:
        assert secret.encode() not in path.read_bytes(), path
