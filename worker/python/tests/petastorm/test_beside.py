"""Petastorm 0.13.1 and our readers of its names on one data set: where it was right, and where it was not.

``make test-petastorm`` sets it up; without it these tests are skipped. What ours does is also tested where petastorm is
not: tests/data/test_readers.py.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from support import parquet

from elasticrun.data import make_batch_reader

PYTHON = os.environ.get("ELASTICRUN_TEST_PETASTORM")
pytestmark = pytest.mark.skipif(PYTHON is None, reason="no petastorm here: make test-petastorm sets it up")

#: 18 row groups of at most 60 rows.
ROWS = 1000


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    return f"file://{parquet.write(tmp_path_factory.mktemp('data'), rows=ROWS)}"


def theirs(url, **options):
    """The column ``index`` as petastorm gives it, or the name of its error."""
    words = [f"{name}={value}" for name, value in options.items()]
    command = [str(PYTHON), str(Path(__file__).with_name("read.py")), url, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    said = json.loads(done.stdout.splitlines()[-1])
    return said.get("index", said.get("error"))


def ours(url, reset=False, **options):
    with make_batch_reader(url, num_epochs=1, batch_size=50, **options) as reader:
        if reset:
            next(reader)
            reader.reset()
        return [int(index) for rows in reader for index in rows.index]


def test_one_reader_gives_each_row_once(url):
    assert sorted(theirs(url)) == sorted(ours(url)) == list(range(ROWS))


def test_the_same_seed_gives_the_same_order_and_another_one_another(url):
    for read in (theirs, ours):
        assert read(url, seed=1) == read(url, seed=1) != read(url, seed=2)


def test_a_seed_decides_which_rows_a_shard_sees(url):
    seen = [
        {frozenset(read(url, seed=seed, cur_shard=0, shard_count=4)) for seed in (1, 2, 3)} for read in (theirs, ours)
    ]
    # A shard of Petastorm has the same row groups in every job, for any seed.
    assert [len(different) for different in seen] == [1, 3]


def test_shards_are_even(url):
    def shards(read):
        return [read(url, cur_shard=shard, shard_count=4) for shard in range(4)]

    lengths = {read: [len(shard) for shard in shards(read)] for read in (theirs, ours)}
    # A job that counts steps by its shortest shard drops rows. Any other job hangs.
    assert max(lengths[theirs]) - min(lengths[theirs]) >= 60
    assert lengths[ours] == [250] * 4
    for read in (theirs, ours):
        assert sorted(row for shard in shards(read) for row in shard) == list(range(ROWS))


def test_more_shards_than_row_groups(url):
    assert theirs(url, cur_shard=0, shard_count=100) == "NoDataAvailableError"
    assert len(ours(url, cur_shard=0, shard_count=100)) == 10


def test_reset_in_the_midst_of_an_epoch(url):
    assert theirs(url, reset=1) == "NotImplementedError"
    assert sorted(ours(url, reset=True)) == list(range(ROWS))
