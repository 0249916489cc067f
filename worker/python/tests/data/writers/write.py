"""Writes a Parquet file with columns of all types that a library has: write.py LIBRARY FILE. A column is called after its type there."""

from __future__ import annotations

import datetime as dt
import decimal
import sys

ROWS = 40
UTC = dt.timezone.utc


def each(make):
    return [make(row) for row in range(ROWS)]


def sparse(make):
    """With nulls."""
    return [None if row % 5 == 3 else make(row) for row in range(ROWS)]


def day(row):
    return dt.date(2026, 1, 1) + dt.timedelta(row)


def instant(row):
    return dt.datetime(2026, 1, 1, 12) + dt.timedelta(seconds=row, microseconds=1000 * row)


def span(row):
    return dt.timedelta(seconds=row, milliseconds=row)


def clock(row):
    return dt.time(1, row, 2, 3000)


def price(row):
    return decimal.Decimal(row) / 4


def ragged(row):
    return list(range(row * 3 % 7))


def raw(row):
    return bytes(range(row % 9))


def place(row):
    return {"x": row, "name": f"p{row}"}


def numbers(convert):
    """Columns of whole numbers."""
    return {name: convert(name, each(lambda row: row)) for name in
            ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")}  # fmt: skip


def pyarrow(path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {
        "float16": (pa.float16(), sparse(float)),
        "float32": (pa.float32(), sparse(float)),
        "float64": (pa.float64(), sparse(float)),
        "bool": (pa.bool_(), each(lambda row: row % 3 == 0)),
        "date32": (pa.date32(), sparse(day)),
        "date64": (pa.date64(), sparse(day)),
        "time32 ms": (pa.time32("ms"), sparse(clock)),
        "time64 us": (pa.time64("us"), sparse(clock)),
        "timestamp ms": (pa.timestamp("ms"), sparse(instant)),
        "timestamp ns": (pa.timestamp("ns"), sparse(instant)),
        "timestamp us, UTC": (pa.timestamp("us", "UTC"), sparse(lambda row: instant(row).replace(tzinfo=UTC))),
        "duration us": (pa.duration("us"), sparse(span)),
        "decimal128": (pa.decimal128(12, 2), sparse(price)),
        "decimal256": (pa.decimal256(50, 2), sparse(price)),
        "string": (pa.string(), sparse(str)),
        "large string": (pa.large_string(), each(str)),
        "string view": (pa.string_view(), each(str)),
        "binary": (pa.binary(), each(raw)),
        "binary of one size": (pa.binary(), each(lambda row: bytes([row] * 4))),
        "fixed-size binary": (pa.binary(4), each(lambda row: bytes([row] * 4))),
        "dictionary": (pa.string(), each(lambda row: "abc"[row % 3])),
        "null": (pa.null(), [None] * ROWS),
        "list": (pa.list_(pa.int32()), sparse(ragged)),
        "list of one length": (pa.list_(pa.float32()), each(lambda row: [row, 0.5])),
        "large list": (pa.large_list(pa.int64()), each(ragged)),
        "fixed-size list": (pa.list_(pa.float32(), 2), each(lambda row: [row, 0.5])),
        "list of strings": (pa.list_(pa.string()), each(lambda row: ["a", "b"][: row % 3])),
        "list of lists": (pa.list_(pa.list_(pa.int8())), each(lambda row: [[row], []][: row % 3])),
        "struct": (pa.struct({"x": pa.int64(), "name": pa.string()}), each(place)),
        "list of structs": (pa.list_(pa.struct({"x": pa.int64()})), each(lambda row: [{"x": row}] * (row % 3))),
        "map": (pa.map_(pa.string(), pa.int64()), each(lambda row: [("a", row)] * (row % 2))),
    }
    columns = numbers(lambda name, values: pa.array(values, getattr(pa, name)()))
    columns |= {name: pa.array(values, kind) for name, (kind, values) in types.items()}
    columns["dictionary"] = columns["dictionary"].dictionary_encode()
    pq.write_table(pa.table(columns), path, row_group_size=10)


def polars(path):
    import polars as pl

    types = {
        "Float32": (pl.Float32, sparse(float)),
        "Float64": (pl.Float64, sparse(float)),
        "Boolean": (pl.Boolean, each(lambda row: row % 3 == 0)),
        "Date": (pl.Date, sparse(day)),
        "Time": (pl.Time, sparse(clock)),
        "Datetime ms": (pl.Datetime("ms"), sparse(instant)),
        "Datetime ns": (pl.Datetime("ns"), sparse(instant)),
        "Datetime us, UTC": (pl.Datetime("us", "UTC"), sparse(lambda row: instant(row).replace(tzinfo=UTC))),
        "Duration us": (pl.Duration("us"), sparse(span)),
        "Decimal": (pl.Decimal(12, 2), sparse(price)),
        "String": (pl.String, sparse(str)),
        "Binary": (pl.Binary, each(raw)),
        "Categorical": (pl.Categorical, each(lambda row: "abc"[row % 3])),
        "Enum": (pl.Enum(["a", "b", "c"]), each(lambda row: "abc"[row % 3])),
        "Null": (pl.Null, [None] * ROWS),
        "List": (pl.List(pl.Int32), sparse(ragged)),
        "Array": (pl.Array(pl.Float32, 2), each(lambda row: [row, 0.5])),
        "List of String": (pl.List(pl.String), each(lambda row: ["a", "b"][: row % 3])),
        "List of List": (pl.List(pl.List(pl.Int8)), each(lambda row: [[row], []][: row % 3])),
        "Struct": (pl.Struct({"x": pl.Int64, "name": pl.String}), each(place)),
    }
    kinds = {"int": "Int", "uin": "UInt"}
    columns = numbers(lambda name, values: pl.Series(values, dtype=getattr(pl, kinds[name[:3]] + name.lstrip("uint"))))
    columns |= {name: pl.Series(values, dtype=kind, strict=False) for name, (kind, values) in types.items()}
    pl.DataFrame(columns).write_parquet(path, row_group_size=10)


def duckdb(path):
    import duckdb

    columns = {
        **{name: f"r::{name}" for name in
           ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT")},
        "FLOAT": "if(r % 5 = 3, NULL, r)::FLOAT",
        "DOUBLE": "if(r % 5 = 3, NULL, r)::DOUBLE",
        "BOOLEAN": "(r % 3 = 0)",
        "DATE": "if(r % 5 = 3, NULL, DATE '2026-01-01' + r::INTEGER)",
        "TIME": "TIME '01:02:03' + to_seconds(r)",
        "TIMESTAMP": "TIMESTAMP '2026-01-01 12:00:00' + to_seconds(r)",
        "TIMESTAMP_NS": "(TIMESTAMP '2026-01-01 12:00:00' + to_seconds(r))::TIMESTAMP_NS",
        "TIMESTAMPTZ": "(TIMESTAMPTZ '2026-01-01 12:00:00+00' + to_seconds(r))",
        "DECIMAL": "(r / 4)::DECIMAL(12, 2)",
        "VARCHAR": "if(r % 5 = 3, NULL, r)::VARCHAR",
        "BLOB": "repeat('ab', r % 9)::BLOB",
        "UUID": "md5(r::VARCHAR)::UUID",
        "ENUM": "(['a', 'b', 'c'][r % 3 + 1])::word",
        "LIST": "range(r * 3 % 7)::INTEGER[]",
        "ARRAY": "[r, r + 1]::FLOAT[2]",
        "LIST of VARCHAR": "(['a', 'b'])[:r % 3]",
        "STRUCT": "{'x': r, 'name': 'p' || r::VARCHAR}",
        "MAP": "MAP {'a': r}",
    }  # fmt: skip
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE TYPE word AS ENUM ('a', 'b', 'c')")
    chosen = ", ".join(f'{expression} AS "{name}"' for name, expression in columns.items())
    connection.execute(
        f"COPY (SELECT {chosen} FROM range({ROWS}) t(r) ORDER BY r) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 10)"
    )


def fastparquet(path):
    import fastparquet as fp
    import numpy as np
    import pandas as pd

    columns = numbers(lambda name, values: np.array(values, dtype=name)) | {
        "float32": np.arange(ROWS, dtype="float32"),
        "float64": np.arange(ROWS, dtype="float64"),
        "bool": np.arange(ROWS) % 3 == 0,
        "Int64": pd.array(each(lambda row: row), dtype="Int64"),
        "boolean": pd.array(each(lambda row: row % 3 == 0), dtype="boolean"),
        "datetime64[ns]": np.array(each(instant), dtype="datetime64[ns]"),
        "timedelta64[ns]": np.array(each(span), dtype="timedelta64[ns]"),
        "object of str": np.array(sparse(str), dtype=object),
        "object of bytes": np.array(each(raw), dtype=object),
        "category": pd.Categorical(each(lambda row: "abc"[row % 3])),
    }
    frame = pd.DataFrame(columns)
    encodings = {"object of str": "utf8", "object of bytes": "bytes"}
    fp.write(
        str(path), frame, row_group_offsets=10, object_encoding={name: encodings.get(name, "infer") for name in columns}
    )


def datasets(path):
    import io

    import datasets as hf
    from PIL import Image

    def image(row):
        stored = io.BytesIO()
        Image.new("RGB", (3 + row % 2, 2), (row, 0, 0)).save(stored, "PNG")
        return {"bytes": stored.getvalue(), "path": None}

    features = {
        "Value int64": (hf.Value("int64"), each(lambda row: row)),
        "Value float32": (hf.Value("float32"), sparse(float)),
        "Value bool": (hf.Value("bool"), each(lambda row: row % 3 == 0)),
        "Value string": (hf.Value("string"), sparse(str)),
        "Value binary": (hf.Value("binary"), each(raw)),
        "Value timestamp[us]": (hf.Value("timestamp[us]"), sparse(instant)),
        "ClassLabel": (hf.ClassLabel(names=["a", "b", "c"]), each(lambda row: row % 3)),
        "List of int32": (hf.List(hf.Value("int32")), each(ragged)),
        "List of string": (hf.List(hf.Value("string")), each(lambda row: ["a", "b"][: row % 3])),
        "Array2D": (hf.Array2D((2, 3), "float32"), each(lambda row: [[row] * 3] * 2)),
        "Image": (hf.Image(), each(image)),
        "struct": ({"x": hf.Value("int64"), "name": hf.Value("string")}, each(place)),
        "Translation": (hf.Translation(["de", "en"]), each(lambda row: {"de": "ja", "en": "yes"})),
    }
    kinds = hf.Features({name: kind for name, (kind, _) in features.items()})
    made = hf.Dataset.from_dict({name: values for name, (_, values) in features.items()}, features=kinds)
    made.to_parquet(str(path), batch_size=10)


def spark(path):
    """By SQL, since what Python types become depends on the version."""
    import tempfile
    from pathlib import Path

    from pyspark.sql import SparkSession

    columns = {
        **{name: f"CAST(r AS {name})" for name in ("TINYINT", "SMALLINT", "INT", "BIGINT")},
        "FLOAT": "CAST(IF(r % 5 = 3, NULL, r) AS FLOAT)",
        "DOUBLE": "CAST(IF(r % 5 = 3, NULL, r) AS DOUBLE)",
        "BOOLEAN": "r % 3 = 0",
        "DECIMAL(7, 2)": "CAST(r / 4 AS DECIMAL(7, 2))",
        "DECIMAL(18, 2)": "CAST(IF(r % 5 = 3, NULL, r / 4) AS DECIMAL(18, 2))",
        "DECIMAL(30, 2)": "CAST(r / 4 AS DECIMAL(30, 2))",
        "STRING": "IF(r % 5 = 3, NULL, CAST(r AS STRING))",
        "CHAR": "CAST('ab' AS CHAR(4))",
        "BINARY": "CAST(REPEAT('ab', CAST(r % 9 AS INT)) AS BINARY)",
        "DATE": "IF(r % 5 = 3, NULL, DATE_ADD(DATE '2026-01-01', CAST(r AS INT)))",
        "TIMESTAMP": "IF(r % 5 = 3, NULL, TIMESTAMP '2026-01-01 12:00:00' + MAKE_DT_INTERVAL(0, 0, 0, r))",
        "TIMESTAMP_NTZ": "TIMESTAMP_NTZ '2026-01-01 12:00:00' + MAKE_DT_INTERVAL(0, 0, 0, r)",
        "INTERVAL DAY TO SECOND": "MAKE_DT_INTERVAL(0, 0, 0, r)",
        "INTERVAL YEAR TO MONTH": "MAKE_YM_INTERVAL(0, CAST(r AS INT))",
        "ARRAY": "IF(r % 5 = 3, NULL, SLICE(SEQUENCE(0, 6), 1, CAST(r % 7 AS INT)))",
        "ARRAY of one length": "ARRAY(CAST(r AS FLOAT), CAST(0.5 AS FLOAT))",
        "ARRAY of STRING": "SLICE(ARRAY('a', 'b'), 1, CAST(r % 3 AS INT))",
        "ARRAY of ARRAY": "ARRAY(ARRAY(r), ARRAY(r, r))",
        "STRUCT": "NAMED_STRUCT('x', r, 'name', CONCAT('p', r))",
        "MAP": "MAP('a', r)",
    }  # fmt: skip
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    chosen = ", ".join(f"{expression} AS `{name}`" for name, expression in columns.items())
    with tempfile.TemporaryDirectory() as folder:
        rows = session.sql(f"SELECT {chosen} FROM (SELECT id AS r FROM RANGE(0, {ROWS}, 1, 1))")
        rows.write.mode("overwrite").parquet(folder)
        (part,) = Path(folder).glob("*.parquet")
        part.rename(path)
    session.stop()


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
