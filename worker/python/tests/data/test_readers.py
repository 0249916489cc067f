"""Readers with Petastorm's interface: its behaviour, except for its errors."""

from __future__ import annotations

import numpy as np
import pytest
from support import parquet

from elasticrun.data import make_batch_reader, make_reader
from elasticrun.errors import DataError


@pytest.fixture
def url(tmp_path):
    return f"file://{parquet.write(tmp_path / 'data set')}".replace(" ", "%20")


def read(url, **options):
    with make_batch_reader(url, **options) as reader:
        return [int(index) for rows in reader for index in rows.index]


def test_batches_are_named_tuples_of_arrays(url):
    with make_batch_reader(url, schema_fields=["x", "index"], batch_size=50) as reader:
        assert reader.batched_output and reader.schema == {"x": reader.schema["x"], "index": "Int64"}
        rows = next(reader)
        assert rows._fields == ("x", "index") and rows.x.shape == (50, 4) and rows.x.dtype == np.float32


def test_rows_are_named_tuples_of_values(url):
    with make_reader(url, shuffle_row_groups=False, shuffle_rows=False) as reader:
        row = next(reader)
        assert (row.index, row.x.tolist(), row.name) == (0, [0.0] * 4, "row 0")
        assert not reader.last_row_consumed
        assert [row.index for row in reader] == list(range(1, 1000))
        assert reader.last_row_consumed


def test_epochs_differ_and_each_has_each_row(url):
    rows = read(url, num_epochs=2)
    assert sorted(rows[:1000]) == sorted(rows[1000:]) == list(range(1000))
    assert rows[:1000] != rows[1000:]


def test_the_seed_decides_which_rows_a_shard_sees(url):
    def shard(seed):
        return set(read(url, seed=seed, cur_shard=0, shard_count=4))

    assert shard(1) == shard(1) != shard(2)


@pytest.mark.parametrize("count", [3, 7, 40])
def test_shards_are_even_and_together_whole(url, count):
    shards = [read(url, cur_shard=shard, shard_count=count) for shard in range(count)]
    assert {len(shard) for shard in shards} <= {1000 // count, 1000 // count + 1}
    assert sorted(index for shard in shards for index in shard) == list(range(1000))


def test_more_shards_than_row_groups_and_rows(tmp_path):
    path = str(parquet.write(tmp_path, rows=3, files=1))
    assert sorted(row for shard in range(5) for row in read(path, cur_shard=shard, shard_count=5)) == [0, 1, 2]


def test_reset_reads_again_and_at_any_time(url):
    with make_batch_reader(url, batch_size=100) as reader:
        next(reader)
        reader.reset()
        assert sum(len(rows.index) for rows in reader) == 1000
        reader.reset()
        assert sum(len(rows.index) for rows in reader) == 1000


def test_for_ever(url):
    with make_batch_reader(url, num_epochs=None, batch_size=400) as reader:
        assert sum(len(next(reader).index) for _ in range(30)) == 10_000


def test_what_is_wrong_is_named(url):
    with pytest.raises(ValueError, match="cur_shard=4: must be from 0 to 3"):
        make_reader(url, cur_shard=4, shard_count=4)
    with pytest.raises(ValueError, match="given together"):
        make_reader(url, cur_shard=4)
    with pytest.raises(ValueError, match="num_epochs=0"):
        make_reader(url, num_epochs=0)
    with pytest.raises(ValueError, match="transform_spec=.*: must be a TransformSpec"):
        make_reader(url, transform_spec=lambda row: row)
    with pytest.raises(DataError, match="nowhere"):
        make_reader("file:///nowhere")
    # Arguments for the communication of Petastorm's processes have no effect.
    make_reader(url, reader_pool_type="process", results_queue_size=5)
