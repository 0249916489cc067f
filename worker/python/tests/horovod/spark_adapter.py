"""Horovod's elastic scenarios on Spark, run by elasticrun: its cluster and its launcher are replaced, and nothing else.

A scenario starts a standalone cluster by the scripts of a Spark distribution, on "hosts" that are names for a count of
cores, calls ``run_elastic``, and looks at the log that rank 0 wrote, or expects an error with Horovod's message. Here the
cluster is that of our own tests, where each host has an address, and ``run_elastic`` is ours.
"""

from __future__ import annotations

import itertools
import re
import threading
import unittest
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import checkout
from cluster import Cluster

import elasticrun.spark
from elasticrun.errors import JobError

#: Additional wait of an epoch, beyond that of a scenario. Horovod's workers share an executor's Python that has imported torch
#: already. elasticrun's workers are separate processes, and on two cores four of them take long to import it.
STRETCH = 3
#: Seconds that a script waits for a notification of hosts, increased for the same reason.
DISCOVERY_WAIT = 90
#: What ``start_timeout`` and ``elastic_timeout`` are at least, in seconds, again for the same reason.
START, ELASTIC = 120, 60
#: Seconds between two looks at the log.
INTERVAL = 0.1
#: The last part of a host's address. None is used twice: a host that was lost may be known for a while.
_ADDRESS = itertools.count(1)


class Hosts:
    """Stands in for the scenarios' controller of a cluster. It takes what the original takes.

    Args:
        cluster: without workers; they are added and removed.
        logfile: what rank 0 writes, a line for each epoch.
        schedule: hosts by the number of lines; those of None come after all others.
        hosts: hosts from the beginning, as ``a:1,b:2``, in place of a schedule.
    """

    def __init__(
        self,
        cluster: Cluster,
        logfile: str,
        schedule: Sequence[tuple[int | None, list[str]]] | None,
        hosts: str | None,
    ) -> None:
        self._cluster = cluster
        self._logfile = Path(logfile)
        self._schedule = dict(schedule or [(0, (hosts or "").split(","))])
        self._addresses: dict[str, str] = {}
        self._ending = threading.Event()
        self._follower = threading.Thread(target=self._follow, daemon=True)

    def master_url(self) -> str:
        """Spark's."""
        return self._cluster.master

    def start(self) -> None:
        """The first hosts, and from now on those that the log calls for."""
        self._provide(self._schedule.pop(0))
        self._follower.start()

    def shutdown(self) -> None:
        """No hosts."""
        self._ending.set()
        self._follower.join()
        self._provide([])

    def _follow(self) -> None:
        seen = 0
        while not self._ending.wait(INTERVAL):
            lines = len(self._logfile.read_text().splitlines()) if self._logfile.exists() else 0
            if lines == seen:
                continue
            seen = lines
            hosts = self._schedule.pop(lines, None)
            if hosts is None:
                hosts = self._schedule.pop(None, None)
            if hosts is not None:
                self._provide(hosts)

    def _provide(self, hosts: list[str]) -> None:
        cores = {name: int(count) for name, _, count in (host.partition(":") for host in hosts)}
        for name in [name for name in self._addresses if name not in cores]:
            self._cluster.remove_worker(self._addresses.pop(name))
        for name, count in cores.items():
            if name not in self._addresses:
                self._addresses[name] = f"127.0.1.{next(_ADDRESS)}"
                self._cluster.add_worker(self._addresses[name], count)


def run_elastic(
    fn: Callable[[str], None],
    args: tuple[str],
    start_timeout: float,
    elastic_timeout: float,
    env: dict[str, str],
    **keywords: Any,
) -> None:
    """Our ``run_elastic`` with what a scenario gives the original; our errors become Horovod's.

    Where a scenario has Spark exclude executors with failed tasks, ours does not use the slot of a failed worker again. By
    itself it would, after some seconds: for Spark the task has not failed, since it is not the worker.
    """
    (command,) = args
    logfile = Path(command.partition("--logfile ")[2].split()[0])
    try:
        elasticrun.spark.run_elastic(
            fn,
            (patient(command),),
            start_timeout=max(start_timeout, START),
            elastic_timeout=max(elastic_timeout, ELASTIC),
            env={**env, **({"ELASTICRUN_BLACKLIST": "forever"} if excludes() else {})},
            **keywords,
        )
    except JobError as error:
        # Whatever a scenario has go wrong, it has it go wrong later.
        assert logfile.exists() and logfile.read_text(), f"nothing was trained: {error}"
        raise RuntimeError(
            f"Horovod detected that one or more processes exited with non-zero status ({error!r})"
        ) from error


def excludes() -> bool:
    """Whether Spark excludes executors with failed tasks. Scenarios use the older name of the setting."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    assert context is not None, "a scenario makes one"
    return context.getConf().get("spark.blacklist.enabled", "false") == "true"


def patient(command: str) -> str:
    """The command of the script, with more time for hosts and epochs; a wait of 0 stays none."""
    command = re.sub(r"(?<=--discovery-wait )[1-9]\d*", str(DISCOVERY_WAIT), command)
    return re.sub(r"(?<=--epoch-wait )\d+", lambda wait: str(int(wait[0]) * STRETCH), command)


def common() -> ModuleType:
    """Horovod's module of scenarios."""
    return checkout.scenarios_on_spark()


def names() -> list[str]:
    """The scenarios; of those over several settings one for each, in whose place the original is None."""
    base = common().BaseElasticSparkTests
    return [name for name in dir(base) if name.startswith("test_") and callable(getattr(base, name))]


def case(scenario: str, script: Path, cluster: Cluster) -> unittest.TestCase:
    """A scenario as a test case: ``getattr(case, scenario)()`` runs it."""
    module = common()

    def controller(
        logfile: str, schedule: Sequence[tuple[int | None, list[str]]] | None, hosts: str | None, _instance: int
    ) -> Hosts:
        return Hosts(cluster, logfile, schedule, hosts)

    module.SparkClusterController = controller  # type: ignore[attr-defined]
    module.run_elastic = run_elastic  # type: ignore[attr-defined]
    made: unittest.TestCase = module.BaseElasticSparkTests(str(script), scenario)
    return made
