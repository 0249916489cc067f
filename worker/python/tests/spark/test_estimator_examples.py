"""The digits by the estimator, and by a notebook."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from cluster import SUBMIT
from jobs import Bench
from support.jobs import Job
from test_examples import EXAMPLES, share

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="there is no torch here: make test-spark brings it"
)


@pytest.mark.parametrize(
    ("name", "says"), [("digits_estimator.py", "epoch 8 of 8: loss train"), ("notebook.py", "epoch 8: ")]
)
def test_it_learns_to_read_digits_and_leaves_no_data(name: str, says: str, bench: Bench, free: None, tmp_path: Path):
    store = tmp_path / "store"
    store.mkdir()
    environment = {**bench.cluster.environment(), "PYSPARK_SUBMIT_ARGS": SUBMIT}
    command = [sys.executable, str(EXAMPLES / name), str(store), bench.cluster.master]
    with Job(command, **environment) as job:
        text = job.succeed()
    assert share(text) > 0.9
    assert re.search(re.escape(says), text), text
    assert not list(store.rglob("*.parquet"))
    print(text)
