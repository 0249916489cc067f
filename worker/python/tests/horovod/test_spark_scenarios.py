"""Horovod's own elastic scenarios on Spark, with Horovod's own training script, on elasticrun and a real cluster.

They need torch and pyspark in one Python: `make test-horovod-spark` brings both.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import checkout
import pytest

if TYPE_CHECKING:
    from cluster import Cluster

#: Why the scenarios are skipped, if they are.
MISSING = (
    checkout.REASON
    if checkout.source() is None
    else f"{checkout.VARIABLE} has no {checkout.ON_SPARK}"
    if not checkout.has_spark_scenarios()
    else "there is no pyspark here: make test-horovod-spark brings it"
    if importlib.util.find_spec("pyspark") is None
    else None
)

if MISSING is None:
    sys.path.append(str(Path(__file__).parents[1] / "spark"))
    import spark_adapter

    SCENARIOS = spark_adapter.names()
else:
    SCENARIOS = ["(none)"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A master, and workers as scenarios want them."""
    from cluster import Cluster, eventually
    from pyspark import SparkContext

    # Horovod gives its executors its whole path, since its function travels by name.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    cluster = Cluster()
    try:
        cluster.enter()
        yield cluster
        eventually(lambda: not cluster.left(), "nothing is left of the scenarios")
    finally:
        if SparkContext._gateway is not None:
            SparkContext._gateway.shutdown()
        cluster.stop()


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, cluster: Cluster, source: Path, tmp_path: Path) -> None:
    script = checkout.moved(source / "test/integration/data/elastic_torch_main.py", tmp_path)
    getattr(spark_adapter.case(scenario, script, cluster), scenario)()
