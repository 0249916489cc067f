"""One cluster for all tests here, and jobs on it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if importlib.util.find_spec("pyspark") is None:
    # Only the environments of `make test-spark` contain it.
    collect_ignore_glob = ["test_*.py"]
else:
    from cluster import HOSTS, Cluster, context, eventually
    from jobs import Bench
    from pyspark import SparkContext


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three workers with two cores each."""
    cluster = Cluster()
    try:
        for host in HOSTS:
            cluster.add_worker(host)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def bench(cluster: Cluster, tmp_path: Path) -> Iterator[Bench]:
    """Jobs of one test; nothing of them may be left."""
    cluster.complete()
    bench = Bench(cluster, tmp_path)
    yield bench
    bench.stop()
    eventually(lambda: not cluster.left(), "nothing is left of the test")


class Contexts:
    """At most one context at a time, kept from test to test: its start takes longer than most tests."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._context: SparkContext | None = None

    def get(self) -> SparkContext:
        if self._context is None:
            self._cluster.enter()
            self._context = context(self._cluster.master)
        eventually(self._is_complete, "each worker has an executor of the context")
        return self._context

    def _is_complete(self) -> bool:
        assert self._context is not None
        # The driver is listed with them.
        executors: int = self._context._jsc.sc().getExecutorMemoryStatus().size() - 1
        return executors == len(HOSTS)

    def free(self) -> None:
        """Gives the cores to programs."""
        if self._context is not None:
            self._context.stop()
            self._context = None
        eventually(lambda: self._cluster.used_cores() == 0, "the cores are free")


@pytest.fixture(scope="session")
def contexts(cluster: Cluster) -> Iterator[Contexts]:
    contexts = Contexts(cluster)
    yield contexts
    contexts.free()


@pytest.fixture
def spark(contexts: Contexts) -> SparkContext:
    """The context of this process, with an executor of two cores on each worker."""
    return contexts.get()


@pytest.fixture
def free(contexts: Contexts) -> None:
    """All cores are free for a program."""
    contexts.free()
