"""Conditions of ``where`` on decimals, and by expressions of pyarrow: the rows are those that pyarrow keeps."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from elasticrun.data import ParquetDataset, make_batch_reader
from elasticrun.errors import DataError

ROWS = 40


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Rows in groups of eight, with statistics and nulls."""
    numbers = [None if row % 7 == 3 else row - 20 for row in range(ROWS)]
    prices = [None if number is None else Decimal(number) / 4 for number in numbers]
    at = dt.datetime(2026, 1, 1)
    table = pa.table(
        {
            "index": range(ROWS),
            "number": pa.array(numbers, pa.int32()),
            "big": pa.array([2**63 + row for row in range(ROWS)], pa.uint64()),
            "float": pa.array([float("nan") if row % 5 == 0 else row / 10 for row in range(ROWS)]),
            "small": pa.array(prices, pa.decimal128(9, 2)),
            "middle": pa.array(prices, pa.decimal128(18, 4)),
            "price": pa.array(prices, pa.decimal128(30, 2)),
            "wide": pa.array(prices, pa.decimal256(60, 2)),
            "name": [f"row {row % 10}" for row in range(ROWS)],
            "even": [None if row == 5 else row % 2 == 0 for row in range(ROWS)],
            "day": [at.date() + dt.timedelta(days=row) for row in range(ROWS)],
            "at": pa.array([at + dt.timedelta(days=row) for row in range(ROWS)], pa.timestamp("ns")),
            "zoned": pa.array([at + dt.timedelta(days=row) for row in range(ROWS)], pa.timestamp("us", "UTC")),
            "span": pa.array([dt.timedelta(minutes=row) for row in range(ROWS)], pa.duration("us")),
            "place": [None if row % 9 == 4 else {"x": row, "in": {"name": f"{row % 3}"}} for row in range(ROWS)],
            "dotted.x": range(ROWS, 0, -1),
        }
    )
    path = tmp_path_factory.mktemp("conditions") / "x.parquet"
    pq.write_table(table, path, row_group_size=8, store_decimal_as_integer=True, write_page_index=True)
    return path


def kept(path, where, **options):
    data = ParquetDataset(path, batch_size=16, columns=["index"], shuffle=False, where=where, **options)
    return [int(row) for batch in data for row in batch["index"]]


def by_pyarrow(path, expression):
    return pq.read_table(path).filter(expression)["index"].to_pylist()


@pytest.mark.parametrize("column", ["small", "middle", "price", "wide"])
def test_decimals_are_compared_exactly(path, column):
    prices = [Decimal(row - 20) / 4 if row % 7 != 3 else None for row in range(ROWS)]

    def rows(test):
        return [row for row, price in enumerate(prices) if price is not None and test(price)]

    for value in [
        Decimal("1.25"),
        Decimal("-1.249"),
        Decimal("1.2500000001"),
        Decimal("-1e30"),
        Decimal("1e-99"),
        1,
        1.25,
    ]:
        exact = Decimal(str(value))
        assert kept(path, [(column, "<", value)]) == rows(lambda price: price < exact), value
        assert kept(path, [(column, ">=", value)]) == rows(lambda price: price >= exact), value
        assert kept(path, [(column, "==", value)]) == rows(lambda price: price == exact), value
        assert kept(path, [(column, "!=", value)]) == rows(lambda price: price != exact), value
    assert kept(path, [(column, "in", [Decimal("0.25"), Decimal("0.125"), np.float64(0.5)])]) == [21, 22]
    assert kept(path, [(column, "<", Decimal("Infinity"))]) == rows(lambda price: True)
    assert kept(path, [(column, "<", float("nan"))]) == []
    with pytest.raises(DataError, match=f'column {column}: cannot compare a column of type Decimal.* with "1"'):
        kept(path, [(column, "<", "1")])
    with pytest.raises(ValueError, match="where: NaN is no number"):
        kept(path, [(column, "<", Decimal("NaN"))])


def test_decimals_are_values_of_all_numbers(path):
    assert kept(path, [("number", "<", Decimal("-18.5"))]) == [0, 1]
    assert kept(path, [("number", "==", Decimal("3.0"))]) == [23]
    assert kept(path, [("number", "==", Decimal("3.1"))]) == []
    assert kept(path, [("float", "==", Decimal("0.3"))]) == [3]
    assert kept(path, [("big", ">=", 2**63 + 38)]) == [38, 39]
    assert kept(path, [("big", "in", [2**63 + 2, 2**70])]) == [2]


def test_statistics_of_decimals_leave_row_groups_out(path):
    for column in ("small", "middle", "price", "wide"):
        data = ParquetDataset(path, batch_size=16, row_groups=[(column, ">", Decimal("3.99"))])
        assert data.row_groups == 1, column
    assert ParquetDataset(path, batch_size=16, row_groups=pc.field("number") < -15).row_groups == 1


EXPRESSIONS = [
    pc.field("number") > 3,
    pc.scalar(3) >= pc.field("number"),
    (pc.field("number") > 3) & (pc.field("name") == "row 7"),
    ~((pc.field("number") > 3) | (pc.field("name") == "row 7")),
    pc.field("number") != -4,
    pc.field("number").isin([1, 5, 9]),
    ~pc.field("number").isin([1, 5, 9]),
    pc.field("number").isin([1, None]),
    ~pc.field("number").isin([1, None]),
    pc.is_in(pc.field("number"), pa.array([1, None]), skip_nulls=True),
    pc.field("name").isin(pa.array([], pa.string())),
    pc.field("number").is_null(),
    ~pc.field("number").is_null(),
    pc.field("number").is_valid() & (pc.field("number") < -15),
    pc.field("float").is_nan(),
    pc.field("float").is_null(nan_is_null=True),
    pc.field("float") > 2.5,
    ~(pc.field("float") > 2.5),
    pc.field("even"),
    ~pc.field("even") | (pc.field("number") == 0),
    pc.scalar(True),
    pc.scalar(False),
    pc.field("price") >= Decimal("1.25"),
    pc.field("day") < dt.date(2026, 1, 10),
    pc.field("at") < dt.datetime(2026, 1, 10, 12),
    pc.field("at") < pa.scalar(1_767_225_600_000_000_001, pa.timestamp("ns")),
    pc.field("zoned") < dt.datetime(2026, 1, 10, tzinfo=dt.timezone.utc),
    pc.field("span") < dt.timedelta(minutes=7),
    pc.field("place", "x") > 30,
    ~(pc.field("place", "x") > 30),
    pc.field("place", "x").is_null(),
    pc.field("place", "in", "name").isin(["1", "2"]) & (pc.field("number") > 3),
]


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_an_expression_keeps_the_rows_that_pyarrow_keeps(path, expression):
    assert kept(path, expression) == by_pyarrow(path, expression)
    # Also beside other conditions.
    assert kept(path, [("index", "<", 25), expression]) == [row for row in by_pyarrow(path, expression) if row < 25]


def test_conditions_on_fields_of_structures(path):
    assert kept(path, [("place.x", ">", 30)]) == [row for row in range(31, ROWS) if row % 9 != 4]
    assert kept(path, [("place.in.name", "==", "1"), ("place.x", "<", 11)]) == [1, 7, 10]
    assert kept(path, [("place.x", "==", None)]) == [4, 13, 22, 31]
    # The name of a column is that column.
    assert kept(path, [("dotted.x", "<=", 2)]) == [38, 39]
    assert ParquetDataset(path, batch_size=16, row_groups=[("place.x", "<", 8)]).row_groups == 1
    with pytest.raises(DataError, match="column place.y: no such column"):
        kept(path, [("place.y", "==", 1)])
    with pytest.raises(DataError, match='column place.x: cannot compare a column of type Int64 with "1"'):
        kept(path, [("place.x", "==", "1")])


def test_scalars_of_pyarrow_are_values(path):
    assert kept(path, [("number", "==", pa.scalar(3))]) == [23]
    assert kept(path, [("at", "<", pa.scalar(dt.datetime(2026, 1, 3)))]) == [0, 1]
    assert kept(path, [("name", "in", pa.array(["row 3"])), ("index", "<", 9)]) == [3]


def test_a_reader_takes_an_expression(path):
    with make_batch_reader(path, ["index"], filters=pc.field("number") < -18) as reader:
        assert sorted(int(row) for batch in reader for row in batch.index) == [0, 1]


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        (pc.field("number") + 1 > 3, r"where: add_checked\(\.\.\.\) > 3: conditions compare a column with a value"),
        (pc.field("number") == pc.field("index"), "where: number == index: conditions compare a column with a value"),
        (pc.starts_with(pc.field("name"), "row"), "where: the function 'starts_with' of pyarrow cannot be translated"),
        (pc.field(0) == 1, "columns are given by their name"),
        (pc.scalar(3), "where: 3 alone is no condition"),
        (pc.field("number") == pa.scalar(None, pa.int32()), r"use is_null\(\) or is_valid\(\)"),
        (pc.field("float").isin([float("nan")]), "where: isin of float with NaN"),
    ],
    ids=str,
)
def test_what_cannot_be_translated_is_named_in_one_line(path, expression, what):
    with pytest.raises(ValueError, match=what) as told:
        kept(path, expression)
    assert "\n" not in str(told.value)
    with pytest.raises(DataError, match="column nobody: no such column"):
        kept(path, pc.field("nobody") == 1)
