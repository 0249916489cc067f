"""Errors for invalid data: they name file, row group and column."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import parquet

from elasticrun.data import Fill, ParquetDataset, make_batch_reader
from elasticrun.errors import DataError


def shard(path, number=0, count=1, **options):
    data = ParquetDataset(path, batch_size=options.pop("batch_size", 10), **options)
    data._enter_shard(number, count)
    return data


def rows(data):
    return [int(index) for batch in data for index in batch["index"]]


def tensors(directory: Path, **options) -> Path:
    """A file of two row groups with a column of tensors, compressed."""
    directory.mkdir(exist_ok=True)
    values = np.random.default_rng(0).standard_normal(200 * 64, dtype=np.float32)
    table = pa.table({"index": np.arange(200), "x": pa.FixedSizeListArray.from_arrays(values, 64)})
    path = directory / "x.parquet"
    pq.write_table(table, path, row_group_size=100, compression="zstd", use_dictionary=False, **options)
    return path


def damage(path: Path, group: int, column: int, write: bytes = b"\xff" * 64) -> None:
    """Overwrites the middle of a column of a row group; size and time stay."""
    chunk = pq.read_metadata(path).row_group(group).column(column)
    times = os.stat(path)
    with open(path, "r+b") as file:
        file.seek(chunk.data_page_offset + chunk.total_compressed_size // 2)
        file.write(write)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_directory_without_a_file_and_a_file_without_a_row(tmp_path):
    assert rows(shard(tmp_path)) == [] and shard(tmp_path).rows == 0
    pq.write_table(pa.table({"index": pa.array([], pa.int64())}), tmp_path / "x.parquet")
    assert rows(shard(tmp_path)) == []
    with make_batch_reader(str(tmp_path)) as reader:
        assert list(reader) == []


@pytest.mark.parametrize("options", [
    {"batch_size": 10},
    {"order": "deterministic", "global_batch_size": 10, "stripes": 60, "batch_size": None},
    {"batch_size": 10, "where": [("index", "<", 0)]},
])  # fmt: skip
def test_a_batch_without_rows_has_the_shapes_of_the_others(tmp_path, options):
    numbers = [[1.0, 2.0, 3.0]] * 3
    table = pa.table({
        "index": np.arange(3),
        "lists": pa.array(numbers, pa.list_(pa.float32())),
        "large": pa.array(numbers, pa.large_list(pa.float64())),
        "fixed": pa.array(numbers, pa.list_(pa.float32(), 3)),
        "bytes": pa.array([b"abcd"] * 3),
        "flag": pa.array([True, False, True]),
        "maybe": pa.array([True, None, True]),
        "weight": pa.array([0.5] * 3),
        "name": pa.array(["a", "bc", "d"]),
    })  # fmt: skip
    path = tmp_path / "x.parquet"
    pq.write_table(table, path)
    forms = {"maybe": Fill(False)}
    (full,) = shard(path, forms=forms)
    with pytest.warns(RuntimeWarning, match="leave out the columns name"):
        names = set(full.torch())
    for number in range(7):
        data = shard(path, number, 7, forms=forms, **options)
        for batch in data:
            if batch.rows:
                continue
            for name in full:
                assert batch[name].shape == (0, *full[name].shape[1:]), name
                assert batch[name].dtype == full[name].dtype, name
            assert (
                set(batch.torch()) >= names == {"index", "lists", "large", "fixed", "bytes", "flag", "maybe", "weight"}
            )
    assert full["bytes"].view("float32").shape == (3, 1)


def test_one_row_for_many_workers(tmp_path):
    path = parquet.write(tmp_path / "set", rows=1, files=1)
    shards = [shard(path, number, 7) for number in range(7)]
    # All workers have the same number of steps, so that no collective hangs. One of them has the row.
    assert {len(data) for data in shards} == {1}
    assert sorted(row for data in shards for row in rows(data)) == [0]


def test_fewer_row_groups_than_workers_and_very_different_sizes(tmp_path):
    pq.write_table(pa.table({"index": np.arange(3)}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"index": np.arange(3, 20_000)}), tmp_path / "b.parquet", row_group_size=20_000)
    shards = [rows(shard(tmp_path, number, 16, batch_size=512)) for number in range(16)]
    assert {len(own) for own in shards} == {1250}
    assert sorted(row for own in shards for row in own) == list(range(20_000))


def test_a_predicate_that_drops_everything_ends_at_once(tmp_path):
    data = shard(parquet.write(tmp_path / "set"), where=[("index", "<", 0)])
    assert rows(data) == []
    assert data.bytes_read == 0


def test_a_file_that_vanished_changed_or_shrank_is_named(tmp_path):
    for change, said in (
        (lambda path: path.unlink(), "x.parquet: .*no such file"),
        (
            lambda path: path.write_bytes(path.read_bytes()[:1000]),
            "x.parquet: .*changed since the data set was opened: it had",
        ),
        (
            lambda path: path.write_bytes(path.read_bytes() + b"more"),
            "x.parquet: .*changed since the data set was opened",
        ),
        (lambda path: os.utime(path, ns=(0, 0)), "x.parquet: .*changed since the data set was opened"),
    ):
        path = tensors(tmp_path)
        data = shard(tmp_path)
        change(path)
        with pytest.raises(DataError, match=said) as error:
            rows(data)
        assert "row group" in str(error.value)


@pytest.mark.parametrize("columns", [["index"], ["x", "index"]])
def test_a_damaged_page_is_named(tmp_path, columns):
    path = tensors(tmp_path, write_page_checksum=True)
    damage(path, 1, 0 if columns == ["index"] else 1)
    data = shard(tmp_path, columns=columns)
    with pytest.raises(DataError, match=rf"x\.parquet: row group 1: column {columns[0]}: is damaged"):
        rows(data)


def test_what_is_skipped_is_counted(tmp_path):
    damage(tensors(tmp_path, write_page_checksum=True), 1, 1)
    data = shard(tmp_path, on_error="skip")
    assert sorted(rows(data)) == list(range(100))
    assert data.skipped == (1, 100)


def test_a_damaged_index_of_pages_is_named(tmp_path):
    path = tensors(tmp_path, write_page_index=True, data_page_size=2000)
    times = os.stat(path)
    content = bytearray(path.read_bytes())
    footer = int.from_bytes(content[-8:-4], "little")
    end = max(
        chunk.data_page_offset + chunk.total_compressed_size
        for group in range(2)
        for chunk in [pq.read_metadata(path).row_group(group).column(1)]
    )
    # The page indexes are between the last column and the footer.
    content[end : len(content) - 8 - footer] = b"\xff" * (len(content) - 8 - footer - end)
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(DataError, match=r"x\.parquet: row group 0: .*is damaged"):
        rows(shard(tmp_path, where=[("index", "==", 5)]))
    # Without a predicate they are not read.
    assert len(rows(shard(tmp_path))) == 200


def test_files_that_differ_are_named(tmp_path):
    pq.write_table(pa.table({"index": [1], "y": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"index": [2], "y": ["z"]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: column y: is of type Utf8, but Int64 in .*a\.parquet"):
        shard(tmp_path)
    assert sorted(rows(shard(tmp_path, columns=["index"]))) == [1, 2]
    pq.write_table(pa.table({"y": [1]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: column index: is missing here, but is in .*a\.parquet"):
        shard(tmp_path, columns=["index"])


def test_nested_types_are_there_as_arrow_and_as_arrays_of_their_fields(tmp_path):
    nested = [{"a": row, "b": [{"c": f"{row}"}] * (row % 3)} for row in range(50)]
    table = pa.table({"index": np.arange(50), "nested": nested, "ragged": [[1.0] * (row % 4) for row in range(50)]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=20)
    seen = {}
    for batch in shard(tmp_path):
        assert batch["nested"]["a"].tolist() == batch["index"].tolist()
        counts = [len(row["c"]) for row in batch["nested.b"]]
        assert counts == [row % 3 for row in batch["index"]]
        arrow = batch.arrow()
        for number, value, ragged in zip(
            *(arrow[name].to_pylist() for name in ("index", "nested", "ragged")), strict=True
        ):
            seen[number] = (value, ragged)
    assert seen == {row: (nested[row], [1.0] * (row % 4)) for row in range(50)}


def test_what_is_no_parquet_file_is_named(tmp_path):
    (tmp_path / "x.parquet").write_text("index,x\n1,2\n" * 100)
    with pytest.raises(DataError, match=r"x\.parquet: is no Parquet file, or a damaged one"):
        shard(tmp_path)
    (tmp_path / "x.parquet").write_bytes(b"")
    with pytest.raises(DataError, match=r"x\.parquet: .*0 bytes are too few"):
        shard(tmp_path)
    with pytest.raises(DataError, match="nowhere: no such file"):
        shard(tmp_path / "nowhere")
    with pytest.raises(DataError, match="ftp is no storage that can be read; known are paths, file, s3, gs"):
        shard("ftp://host/set")


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "lz4", "zstd", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_all_codecs_of_pyarrow_are_read(tmp_path, codec, version):
    table = pa.table(
        {
            "index": range(1000),
            "x": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(4000, dtype=np.float32)), 4),
            "tokens": [list(range(row % 5)) for row in range(1000)],
            "name": [None if row % 9 == 0 else f"row {row}" for row in range(1000)],
        }
    )
    options = {"data_page_version": version, "data_page_size": 4 << 10, "write_page_index": True}
    pq.write_table(table, tmp_path / "x.parquet", compression=codec, row_group_size=400, **options)
    data = ParquetDataset(tmp_path, batch_size=128, shuffle=False)
    assert pa.concat_tables([pa.table(batch) for batch in data]).to_pylist() == table.to_pylist()
    few = ParquetDataset(tmp_path, batch_size=128, shuffle=False, where=[("index", "in", [3, 777])])
    assert [name for batch in few for name in batch["name"]] == ["row 3", "row 777"]
