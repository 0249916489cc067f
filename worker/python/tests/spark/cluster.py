"""A standalone Spark cluster on this machine: a master, and workers with separate addresses, so that they count as hosts."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pyspark
from pyspark import SparkConf, SparkContext
from support.ports import free_port

T = TypeVar("T")

#: Longest wait for anything in seconds: many times what it takes on two busy processors.
TIMEOUT = 120.0
#: Marks all processes of the cluster and of programs on it.
TAG = "ELASTICRUN_SPARK_TEST"
#: A join token that expires in the year 2286.
JOIN_TOKEN = "er2.c1d6b693.BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc.9999999999"
#: Where Spark is.
HOME = Path(pyspark.__file__).parent
#: The workers' hosts.
HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
#: Spark's settings for programs that set none themselves.
SUBMIT = "--conf spark.executor.memory=512m --conf spark.driver.host=127.0.0.1 pyspark-shell"
#: Declares two GPUs on each worker. There are none; only their assignment to tasks matters.
GPUS = """#!/bin/sh
echo '{"name": "gpu", "addresses": ["0", "1"]}'
"""
#: A JVM that starts quickly and needs little.
LEAN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"


def eventually(look: Callable[[], T], what: str, within: float = TIMEOUT) -> T:
    """What ``look`` gives once that is true."""
    deadline = time.monotonic() + within
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: not within {within} s"
        time.sleep(0.02)
    return found


def parent(pid: int) -> int:
    """The process that started another one, or took it in."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def context(master: str | None = None, **settings: object) -> SparkContext:
    """A context with small executors; ``settings`` are keys of Spark without ``spark.``, dots as two underscores."""
    plain = {
        "driver.host": "127.0.0.1",
        "driver.memory": "512m",
        "driver.extraJavaOptions": LEAN,
        "executor.memory": "512m",
        "executor.extraJavaOptions": LEAN,
        "ui.enabled": "false",
        "decommission.enabled": "true",
        "eventLog.enabled": "true",
        "eventLog.dir": os.environ["SPARK_TEST_EVENTS"],
    }
    conf = SparkConf().setMaster(master or os.environ["SPARK_TEST_MASTER"]).setAppName("test")
    for key, value in {**plain, **settings}.items():
        conf.set("spark." + key.replace("__", "."), str(value))
    made = SparkContext(conf=conf)
    made.setLogLevel("ERROR")
    return made


class Cluster:
    """See the module. Each worker has two cores."""

    def __init__(self) -> None:
        self.tag = secrets.token_hex(8)
        self.directory = Path(tempfile.mkdtemp(prefix="elasticrun-spark-"))
        (self.directory / "events").mkdir()
        gpus = self.directory / "gpus.sh"
        gpus.write_text(GPUS)
        gpus.chmod(0o755)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ui = free_port()
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self._start("master", "127.0.0.1", "master.Master", "--port", str(port), "--webui-port", str(self.ui))
        eventually(self.state, "the master answers")

    def add_worker(self, host: str, cores: int = 2) -> None:
        """Starts a worker and waits until the master knows it."""
        options = ("--cores", str(cores), "--memory", "2g", "--webui-port", "0")
        folder = str(self.directory / host)
        self._start(host, host, "worker.Worker", *options, "--work-dir", folder, self.master)
        eventually(lambda: host in self.workers(), f"worker {host} is registered")

    def remove_worker(self, host: str) -> None:
        """Kills a worker, and waits until the master has seen it and its executors have ended with it.

        One that is told to end ends its executors first; the master may give it another one meanwhile, which outlives it.
        So does an executor that is just starting: it looks after a worker that it has once reached.
        """
        process = self._processes.pop(host)
        process.kill()
        process.wait(TIMEOUT)
        eventually(lambda: host not in self.workers(), f"worker {host} is gone")
        eventually(lambda: host not in self.executors().values(), f"executors on {host} have ended")

    def decommission_worker(self, host: str) -> None:
        """Decommissions a worker: its executors get no more tasks, and end when their tasks have ended."""
        self._processes[host].send_signal(signal.SIGPWR)
        eventually(lambda: host not in self.workers(), f"worker {host} is decommissioned")

    def complete(self) -> None:
        """Starts the workers that are missing."""
        for host in HOSTS:
            if host not in self.workers():
                self.add_worker(host)

    def enter(self) -> None:
        """Makes this process a part of the cluster: its children are marked, too."""
        os.environ.update(self.environment())

    def workers(self) -> list[str]:
        """Hosts of the workers that are alive."""
        state = self.state() or {"workers": []}
        return [worker["host"] for worker in state["workers"] if worker["state"] == "ALIVE"]

    def used_cores(self) -> int:
        """Cores that applications hold."""
        state = self.state()
        assert state is not None
        return int(state["coresused"])

    def state(self) -> dict[str, Any] | None:
        """The answer of the master's REST interface; None while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ui}/json/", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError):
            # At first its server has no such page, and gives another one.
            return None

    def environment(self) -> dict[str, str]:
        """Variables of a program on this cluster."""
        return {
            **os.environ,
            TAG: self.tag,
            "SPARK_TEST_EVENTS": str(self.directory / "events"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join(
                [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
            ),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
        }

    def processes(self) -> dict[int, str]:
        """All processes of the cluster and of programs on it with their command lines."""
        found = {}
        mark = f"{TAG}={self.tag}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(entry.name)] = words.decode(errors="replace").strip()
            except OSError:
                # It has just ended.
                continue
        return {pid: words for pid, words in found.items() if words}

    def left(self) -> dict[int, str]:
        """Processes of jobs: drivers, task services, and workers."""
        ours = ("task-service", "elasticrun run", "elasticrun._function_worker", "agent-guard")
        return {pid: words for pid, words in self.processes().items() if any(name in words for name in ours)}

    def executors(self) -> dict[int, str]:
        """JVMs of executors, and the host of each."""
        jvms = {}
        for pid, words in self.processes().items():
            if "CoarseGrainedExecutorBackend" in words and "--hostname" in words:
                jvms[pid] = words.split("--hostname ")[1].split()[0]
        return jvms

    def stop(self) -> None:
        """Ends all."""
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait()
        for pid in self.processes():
            if pid != os.getpid():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self, name: str, host: str, kind: str, *arguments: str) -> None:
        log = (self.directory / f"{name}.log").open("ab")
        environment = {
            **self.environment(),
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_WORKER_OPTS": "-Dspark.decommission.enabled=true -Dspark.worker.resource.gpu.amount=2"
            f" -Dspark.worker.resource.gpu.discoveryScript={self.directory}/gpus.sh",
            "SPARK_DAEMON_JAVA_OPTS": "-Dspark.worker.timeout=30 " + LEAN,
        }
        command = [str(HOME / "bin/spark-class"), f"org.apache.spark.deploy.{kind}"]
        with log:
            self._processes[name] = subprocess.Popen(
                [*command, "--host", host, *arguments], env=environment, stdout=log, stderr=log
            )
