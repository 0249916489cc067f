"""The join token of a job protects it, and does not leak."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from cluster import JOIN_TOKEN, TIMEOUT, eventually
from jobs import Bench
from pyspark import SparkContext

from elasticrun import _binary
from elasticrun.spark.driver_process import DriverEndpoint, DriverProcess


@pytest.fixture
def endpoints(monkeypatch: pytest.MonkeyPatch) -> list[DriverEndpoint]:
    """The endpoints that drivers send to their parent."""
    endpoints: list[DriverEndpoint] = []
    listening = DriverProcess.listening

    def listening_recorded(driver: DriverProcess) -> DriverEndpoint | None:
        found = listening(driver)
        if found is not None:
            endpoints.append(found)
        return found

    monkeypatch.setattr(DriverProcess, "listening", listening_recorded)
    return endpoints


@pytest.mark.quick
def test_a_task_with_the_wrong_token_is_refused(bench: Bench, spark: SparkContext, endpoints: list[DriverEndpoint]):
    job = bench.run(spark, num_proc=2)
    before = bench.training(2)
    task = {"machine": "127.0.0.9", "slot": 0, "attempt": 99}
    settings = {"driver": [f"127.0.0.1:{endpoints[0].port}"], "token": JOIN_TOKEN, "task": task}
    stranger = subprocess.Popen(
        [str(_binary.find()), "task-service"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert stranger.stdin is not None and stranger.stderr is not None
    # The pipe stays open, because the service exits when it is closed.
    stranger.stdin.write(json.dumps(settings) + "\n")
    stranger.stdin.flush()
    assert stranger.wait(TIMEOUT) == 2
    (line,) = stranger.stderr.readlines()
    assert "join token" in line
    stranger.stdin.close()
    stranger.stderr.close()
    after = bench.training(2, after=before[0].at)
    assert {step.pid for step in after} == {step.pid for step in before}
    bench.finish()
    assert len(job.results()) == 2


@pytest.mark.quick
def test_the_token_is_in_no_command_line_and_in_no_log(
    bench: Bench, spark: SparkContext, endpoints: list[DriverEndpoint]
):
    job = bench.run(spark, num_proc=4)
    bench.training(4)
    secret = endpoints[0].token.split(".")[2]
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
