"""Data sets that petastorm 0.13.1 writes with Spark, read by it and by us: each value, and each window of rows.

``make test-petastorm`` sets it up; without it these tests are skipped. A small data set that it wrote once is read in
tests/data/test_petastorm.py.
"""

from __future__ import annotations

import json
import os
import subprocess
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from elasticrun.data import NGram, make_reader

PYTHON = os.environ.get("ELASTICRUN_TEST_PETASTORM_SPARK")
pytestmark = pytest.mark.skipif(PYTHON is None, reason="no petastorm with Spark here: make test-petastorm sets it up")
WRITE = Path(__file__).parents[1] / "data" / "petastorm" / "write.py"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    directory = tmp_path_factory.mktemp("written")
    environment = {**os.environ, "PYSPARK_PYTHON": str(PYTHON)}
    subprocess.run([str(PYTHON), str(WRITE), str(directory)], check=True, env=environment, capture_output=True)
    return directory


def same(name, ours, wanted):
    """Whether two values are; of JPEG, decoders differ by a little."""
    if wanted.dtype.kind == "U":
        return Decimal(ours) == Decimal(str(wanted)) if name == "price" else ours == str(wanted)
    ours = np.asarray(ours)
    if name in ("photo", "shade"):
        far = np.abs(ours.astype(int) - wanted.astype(int))
        return ours.shape == wanted.shape and far.max() <= 4 and far.mean() < 1
    return ours.shape == wanted.shape and ours.dtype == wanted.dtype and np.array_equal(ours, wanted)


def test_each_value_is_what_petastorm_reads(written):
    expected = np.load(written / "expected.npz")
    read = 0
    with make_reader(f"file://{written}/set") as reader:
        for row in reader:
            for name, value in row._asdict().items():
                key = f"{name}/{row.id}"
                assert (value is None) == (key not in expected), key
                if value is not None:
                    assert same(name, value, expected[key]), key
                    read += 1
    assert read == len(expected.files)


@pytest.mark.parametrize("overlap", [True, False])
def test_windows_are_those_that_petastorm_forms(written, overlap):
    ngram = NGram({row: ["id", "small"] for row in range(3)}, 2, "id", overlap)
    with make_reader(f"file://{written}/set", ngram) as reader:
        found = sorted([int(window[row].id) for row in range(3)] for window in reader)
    assert found == json.loads((written / "windows.json").read_text())[str(overlap)]
    assert found
