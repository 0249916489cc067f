"""Files with different columns: null where a file lacks one, and the widest type of each number."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticrun.data import Fill, NGram, Pad, ParquetDataset
from elasticrun.errors import DataError


@pytest.fixture
def path(tmp_path):
    """Ten rows without a label; ten with wider numbers, a label and a list; ten with other columns only."""
    first = {
        "index": pa.array(range(10), pa.int32()),
        "small": pa.array(range(10), pa.uint16()),
        "weight": pa.array(np.arange(10) / 4, pa.float32()),
        "name": [f"row {row}" for row in range(10)],
        "nothing": pa.nulls(10),
    }
    second = {
        "label": [row % 3 for row in range(10)],
        "weight": np.arange(10) + 1e-9,
        "index": pa.array(range(10, 20), pa.int64()),
        "small": pa.array(range(10), pa.int64()),
        "name": [f"row {row}" for row in range(10, 20)],
        "tokens": [list(range(row % 4)) for row in range(10)],
        "nothing": ["some"] * 10,
    }
    third = {"index": pa.array(range(20, 30), pa.int8()), "place": [{"x": row} for row in range(10)]}
    for name, columns in (("a", first), ("b", second), ("c", third)):
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=4, write_page_index=True)
    return tmp_path


def read(path, **options):
    data = ParquetDataset(path, batch_size=7, shuffle=False, merge_schemas=True, **options)
    tables = [pa.table(batch) for batch in data]
    return pa.concat_tables(tables)


def test_a_column_that_a_file_lacks_is_null_there(path):
    found = read(path)
    expected = pa.concat_tables([pq.read_table(file) for file in sorted(path.iterdir())], promote_options="permissive")
    assert found.column_names == expected.column_names
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist(), name
    types = {
        "index": pa.int64(),
        "small": pa.int64(),
        "weight": pa.float64(),
        "label": pa.int64(),
        "nothing": pa.string(),
    }
    assert {name: found.schema.field(name).type for name in types} == types


@pytest.mark.parametrize("options", [{}, {"order": "deterministic", "global_batch_size": 7, "stripes": 3}])
def test_batches_have_one_type(path, options):
    forms = {"label": Fill(-1), "tokens": Pad(-1), "small": Fill(0), "place.x": Fill(-1)}
    options = options or {"batch_size": 7}
    data = ParquetDataset(path, merge_schemas=True, forms=forms, **options)
    rows = {}
    for batch in data:
        assert (batch["index"].dtype, batch["weight"].dtype, batch["label"].dtype) == ("int64", "float64", "int64")
        assert batch["tokens"].ndim == 2 and batch["place.x"].dtype == "int64"
        rows |= dict(zip(batch["index"].tolist(), batch["weight"].tolist(), strict=True))
    assert sorted(rows) == list(range(30))
    assert rows[3] == 0.75 and rows[11] == 1 + 1e-9 and np.isnan(rows[25])


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ([("label", "==", 1)], [11, 14, 17]),
        ([("label", "==", None)], [*range(10), *range(20, 30)]),
        ([("label", "!=", None), ("index", ">", 17)], [18, 19]),
        ([("index", ">=", 8), ("index", "<", 22)], list(range(8, 22))),
        ([("weight", ">", 2.2)], [9, *range(13, 20)]),
        ([("name", "==", "row 3")], [3]),
    ],
)
def test_conditions_are_on_the_merged_columns(path, where, kept):
    assert read(path, where=where, columns=["index", "label"])["index"].to_pylist() == kept


def test_row_groups_and_windows(path):
    data = ParquetDataset(path, batch_size=7, merge_schemas=True, row_groups=[("label", ">=", 0)])
    assert data.row_groups == 3
    ngram = NGram({0: ["index", "label"]}, 1, "index")
    data = ParquetDataset(path, batch_size=30, merge_schemas=True, ngram=ngram, forms={"0/label": Fill(-1)})
    assert sum(batch.rows for batch in data) == 30


def test_without_it_files_must_agree(path):
    with pytest.raises(DataError, match="b.parquet: column index: .*Int32.*Int64|b.parquet: column index"):
        ParquetDataset(path, batch_size=7)
    with pytest.raises(DataError, match="column label: no such column"):
        ParquetDataset(path, batch_size=7, columns=["label"])


def test_types_that_cannot_be_merged_are_named(path):
    pq.write_table(pa.table({"index": pa.array([1.5])}), path / "d.parquet")
    with pytest.raises(DataError, match="d.parquet: column index: .*Float64.*Int64") as told:
        ParquetDataset(path, batch_size=7, merge_schemas=True)
    assert "b.parquet" in str(told.value)
