"""Rows by their number, for looking at data."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import parquet

from elasticrun.data import Fill, ParquetDataset
from elasticrun.errors import DataError


@pytest.mark.parametrize("options", [{}, {"where": [("index", "<", 10)]}, {"shuffle": False}])
def test_rows_are_numbered_in_the_order_of_the_files(tmp_path, options):
    data = ParquetDataset(parquet.write(tmp_path, rows=1000), batch_size=64, **options)
    numbers = [999, 17, 0, 17, 500, -1, 333]
    batch = data.rows_at(numbers)
    assert batch["index"].tolist() == [999, 17, 0, 17, 500, 999, 333]
    assert batch["name"].tolist()[1] == "row 17" and batch["x"].shape[0] == 7
    assert data.rows_at(np.array([3, 4]))["index"].tolist() == [3, 4]
    assert data.rows_at([]).rows == 0


def test_nothing_of_the_position_changes(tmp_path):
    path = parquet.write(tmp_path, rows=1000)
    whole = [batch["index"].tolist() for batch in ParquetDataset(path, batch_size=64)]
    data = ParquetDataset(path, batch_size=64)
    found = []
    for batch in data:
        found.append(batch["index"].tolist())
        before = (data.progress().own_left, data.bytes_read, len(data))
        assert data.rows_at([5, 700])["index"].tolist() == [5, 700]
        assert (data.progress().own_left, data.bytes_read, len(data)) == before
    assert found == whole


def test_pages_without_a_wanted_row_are_not_decoded_and_nulls_and_forms_apply(tmp_path):
    rows = 30_000
    noise = np.random.default_rng(0).standard_normal((rows, 16), dtype=np.float32)
    table = pa.table(
        {
            "x": pa.FixedSizeListArray.from_arrays(noise.ravel(), 16),
            "label": pa.array([None if row % 2 else row for row in range(rows)]),
            "text": [f"row {row}" for row in range(rows)],
        }
    )
    options = {"write_page_index": True, "data_page_size": 8 << 10, "use_dictionary": False}
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=rows, **options)
    data = ParquetDataset(tmp_path, batch_size=64, forms={"label": Fill(-1)})
    batch = data.rows_at([20_000, 7])
    assert batch["label"].tolist() == [20_000, -1] and batch["text"].tolist() == ["row 20000", "row 7"]
    assert np.array_equal(batch["x"], noise[[20_000, 7]])


def test_a_row_that_is_none_is_told(tmp_path):
    data = ParquetDataset(parquet.write(tmp_path / "set", rows=100), batch_size=64)
    for wrong in (100, -101):
        with pytest.raises(IndexError, match=f"there is no row {wrong}: the data set has 100 rows"):
            data.rows_at([wrong])
    for path in (tmp_path / "set").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="parquet: "):
        data.rows_at([0])
