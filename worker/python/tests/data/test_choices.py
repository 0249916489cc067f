"""Selection of row groups, windows and partition columns, and transforms."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import parquet

from elasticrun.data import Mixture, NGram, ParquetDataset, WeightedSamplingReader, make_batch_reader, make_reader
from elasticrun.errors import DataError


@pytest.fixture
def path(tmp_path):
    """1,000 rows in three files, in row groups of 60 and less: 18 of them."""
    return str(parquet.write(tmp_path / "set"))


def read(path, **options):
    """The column `index` of all rows, and the data set."""
    data = ParquetDataset(path, batch_size=64, **options)
    data._enter_shard(0, 1)
    return sorted(int(index) for batch in data for index in batch["index"]), data


def test_row_groups_by_number_statistics_and_function(path):
    assert read(path, row_groups=[0])[0] == list(range(60))
    rows, data = read(path, row_groups=[("index", ">=", 990)])
    assert rows == list(range(966, 1000)) and (data.rows, data.row_groups) == (34, 1)
    rows, _ = read(path, row_groups=lambda group: group.file.endswith("part-1.parquet") and group.index == 0)
    assert rows == list(range(333, 393))
    assert read(path, row_groups=[])[0] == []


def test_row_groups_that_are_none_are_said(path):
    with pytest.raises(ValueError, match="there is no row group 18; the data set has 18"):
        read(path, row_groups=[18])
    with pytest.raises(TypeError, match="row_groups='all': must be numbers"):
        read(path, row_groups="all")
    with pytest.raises(DataError, match="column nobody: no such column"):
        read(path, row_groups=[("nobody", "==", 1)])


def test_a_transform_makes_the_columns_of_a_batch(path):
    def doubled(columns):
        return {"twice": columns["index"] * 2, "x": columns["x"][:, :2]}

    data = ParquetDataset(path, batch_size=300, transform=doubled, shuffle=False)
    data._enter_shard(0, 1)
    batches = list(data)
    assert [index for batch in batches for index in batch["twice"]] == list(range(0, 2000, 2))
    assert set(batches[0]) == {"twice", "x"} and batches[0]["x"].shape == (300, 2)
    assert batches[0].torch()["twice"].shape == (300,)
    table = pa.table(batches[0])
    assert table.num_rows == 300 and table["x"].type == pa.list_(pa.float32(), 2)


def test_columns_of_different_lengths_are_said(path):
    data = ParquetDataset(path, batch_size=10, transform=lambda columns: {"a": columns["index"], "b": columns["x"][:3]})
    data._enter_shard(0, 1)
    with pytest.raises(ValueError, match="columns of different lengths: a 10, b 3"):
        next(iter(data))


def test_names_of_directories_are_columns(tmp_path):
    for day in (3, 4):
        for kind in ("a", "b c"):
            below = tmp_path / f"day={day}" / f"kind={kind}"
            below.mkdir(parents=True)
            pq.write_table(pa.table({"x": [10 * day]}), below / "x.parquet")
    data = ParquetDataset(tmp_path, batch_size=10, where=[("day", ">", 3), ("kind", "==", "b c")])
    data._enter_shard(0, 1)
    (batch,) = [batch for batch in data if batch.rows]
    assert {name: batch[name].tolist() for name in batch} == {"x": [40], "day": [4], "kind": ["b c"]}


def test_a_predicate_reads_fewer_bytes(tmp_path):
    rows = 50_000
    noise = np.random.default_rng(0).standard_normal((rows, 8), dtype=np.float32)
    table = pa.table({"index": np.arange(rows), "x": pa.FixedSizeListArray.from_arrays(noise.ravel(), 8)})
    for name, pages in (("pages", True), ("none", False)):
        (tmp_path / name).mkdir()
        options = {"write_page_index": pages, "data_page_size": 8 << 10, "use_dictionary": False}
        pq.write_table(table, tmp_path / name / "x.parquet", row_group_size=rows, **options)
    _, whole = read(tmp_path / "pages")
    where = [("index", ">=", 30_000), ("index", "<", 30_100)]
    rows_of = {name: read(tmp_path / name, where=where) for name in ("pages", "none")}
    assert rows_of["pages"][0] == rows_of["none"][0] == list(range(30_000, 30_100))
    assert rows_of["pages"][1].bytes_read * 10 < whole.bytes_read
    assert rows_of["none"][1].bytes_read > whole.bytes_read / 2


def timed(directory):
    """Two row groups of ten rows; time makes a jump behind the fifth of each."""
    directory.mkdir()
    index = np.arange(20)
    table = pa.table({"time": index + index // 5 * 100, "x": index * 1.5, "name": [f"row {row}" for row in index]})
    pq.write_table(table, directory / "x.parquet", row_group_size=10)
    return str(directory)


def test_windows_of_rows_as_petastorm_gives_them(tmp_path):
    ngram = NGram({-1: ["x"], 1: ["x", "na.*"]}, delta_threshold=1, timestamp_field="time")
    with make_reader(timed(tmp_path / "set"), schema_fields=ngram) as reader:
        windows = sorted((window for window in reader), key=lambda window: window[-1].x)
    assert [window[-1].x / 1.5 for window in windows] == [0, 1, 2, 5, 6, 7, 10, 11, 12, 15, 16, 17]
    assert all(window[1].x == window[-1].x + 3 and set(window) == {-1, 1} for window in windows)
    assert windows[0][1]._fields == ("x", "name") and windows[0][1].name == "row 2"


def test_windows_that_do_not_overlap_and_batches_of_them(tmp_path):
    path = timed(tmp_path / "set")
    ngram = NGram({0: ["x"], 1: ["x"]}, delta_threshold=1, timestamp_field="time", timestamp_overlap=False)
    with make_batch_reader(path, schema_fields=ngram) as reader:
        firsts = sorted(float(x) / 1.5 for batch in reader for x in batch[0].x)
    assert firsts == [0, 2, 5, 7, 10, 12, 15, 17]
    data = ParquetDataset(path, batch_size=4, ngram=ngram)
    data._enter_shard(0, 1)
    batches = list(data)
    assert sum(batch.rows for batch in batches) == 8 and set(batches[0]) == {"0/x", "1/x"}


def test_windows_that_cannot_be_are_said(tmp_path):
    path = timed(tmp_path / "set")
    with pytest.raises(ValueError, match="no field matches 'speed'; there are: time, x, name"):
        make_reader(path, schema_fields=NGram({0: ["speed"]}, 1, "time"))
    with pytest.raises(DataError, match="column name: cannot order windows: a column of type Utf8 is no time"):
        make_reader(path, schema_fields=NGram({0: ["x"]}, 1, "name"))
    with pytest.raises(ValueError, match=r"NGram\(fields=\[\]\)"):
        NGram([], 1, "time")
    pq.write_table(pa.table({"time": [1, 3, 2], "x": [0.0, 0.0, 0.0]}), tmp_path / "set" / "y.parquet")
    with pytest.raises(
        DataError, match="y.parquet: row group 0: column time: .*row 2 of the row group is earlier than row 1"
    ):
        list(make_reader(path, schema_fields=NGram({0: ["x"]}, 1, "time")))


def parts(tmp_path, counts, **options):
    sets = []
    for number, rows in enumerate(counts):
        path = parquet.write(tmp_path / f"set {number}", rows=rows)
        data = ParquetDataset(path, batch_size=10, seed=number, **options)
        data._enter_shard(0, 1)
        sets.append(data)
    return sets


def test_a_mixture_goes_by_weights_and_gives_each_row_once(tmp_path):
    mixture = Mixture(parts(tmp_path, [600, 300]), weights=[3, 1])
    assert (len(mixture), mixture.rows) == (90, 900)
    for _ in mixture.epochs(2):
        batches = list(mixture)
        sources = [batch.source for batch in batches]
        # While both last, three of four batches are from the first, to within one at any time.
        for end in range(1, 80):
            assert abs(sources[:end].count(0) - end * 3 / 4) <= 1
        assert sources[80:] == [1] * 10
        for source, rows in ((0, 600), (1, 300)):
            own = [int(i) for batch in batches if batch.source == source for i in batch["index"]]
            assert sorted(own) == list(range(rows))


def test_without_weights_all_end_together(tmp_path):
    sources = [batch.source for batch in Mixture(parts(tmp_path, [600, 300, 100]))]
    assert set(sources[-8:]) == {0, 1, 2} and [sources.count(source) for source in range(3)] == [60, 30, 10]


@pytest.mark.parametrize("weights", [[1], [1, 0], [1, float("nan")], [1, -2]])
def test_weights_that_are_none_are_said(tmp_path, weights):
    with pytest.raises(ValueError, match="weights=.*: must be 2 positive numbers"):
        Mixture(parts(tmp_path, [10, 10]), weights=weights)


def test_weighted_sampling_reads_each_row_once(tmp_path):
    paths = [str(parquet.write(tmp_path / name, rows=rows)) for name, rows in (("a", 900), ("b", 600))]
    with WeightedSamplingReader([make_reader(path) for path in paths], [0.9, 0.1]) as reader:
        rows = [int(row.index) for row in reader]
        assert reader.last_row_consumed
    assert sorted(rows) == sorted([*range(900), *range(600)])
    # 900 draws of the first reader take about 1,000 draws in all, 100 of them of the second.
    with WeightedSamplingReader([make_reader(path) for path in paths], [9, 1]) as again:
        assert [int(row.index) for row in again] == rows


def test_readers_that_do_not_fit_together_are_said(tmp_path):
    path = str(parquet.write(tmp_path / "a", rows=10))
    with pytest.raises(ValueError, match="readers 0 and 1 differ in batched_output"):
        WeightedSamplingReader([make_reader(path), make_batch_reader(path)], [1, 1])
    with pytest.raises(ValueError, match="readers 0 and 1 differ in schema"):
        WeightedSamplingReader([make_reader(path), make_reader(path, ["index"])], [1, 1])
