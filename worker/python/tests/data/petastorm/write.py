"""Writes a data set with petastorm and Spark, and beside it what petastorm reads from it.

Usage: write.py DIRECTORY [--rows N] [--size PIXELS] [--files N]

DIRECTORY/set is the data set, partitioned by `part` and indexed by `id`, `kind` and whether `label` is there.
DIRECTORY/expected.npz holds each value as petastorm's own reader gives it, by "field/id"; DIRECTORY/windows.json
the windows of rows that it forms, by whether they overlap. The fixture in this
directory was made by `--rows 12 --size 6 --files 1`, without its expected.npz; `make test-petastorm` writes a larger one and reads it.
"""

from __future__ import annotations

import argparse
import json
import warnings
from decimal import Decimal
from pathlib import Path

warnings.filterwarnings("ignore")

import numpy as np
from kinds import row
from petastorm import make_reader
from petastorm.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec, ScalarCodec
from petastorm.etl.dataset_metadata import materialize_dataset
from petastorm.etl.rowgroup_indexers import FieldNotNullIndexer, SingleFieldIndexer
from petastorm.etl.rowgroup_indexing import build_rowgroup_index
from petastorm.ngram import NGram
from petastorm.unischema import Unischema, UnischemaField, dict_to_spark_row
from pyspark.sql import SparkSession
from pyspark.sql import types as sql


def schema(size: int) -> Unischema:
    """One field of each kind that petastorm knows."""
    return Unischema(
        "Kinds",
        [
            UnischemaField("id", np.int64, (), ScalarCodec(sql.LongType()), False),
            UnischemaField("part", np.str_, (), ScalarCodec(sql.StringType()), False),
            UnischemaField("small", np.uint8, (), ScalarCodec(sql.ShortType()), False),
            UnischemaField("half", np.float32, (), ScalarCodec(sql.FloatType()), False),
            UnischemaField("flag", np.bool_, (), ScalarCodec(sql.BooleanType()), False),
            UnischemaField("kind", np.str_, (), ScalarCodec(sql.StringType()), False),
            UnischemaField("maybe", np.int32, (), ScalarCodec(sql.IntegerType()), True),
            UnischemaField("label", np.str_, (), ScalarCodec(sql.StringType()), True),
            UnischemaField("price", Decimal, (), ScalarCodec(sql.DecimalType(10, 4)), False),
            UnischemaField("day", np.datetime64, (), ScalarCodec(sql.DateType()), False),
            UnischemaField("matrix", np.float32, (3, 4), NdarrayCodec(), False),
            UnischemaField("ragged", np.int16, (None,), NdarrayCodec(), False),
            UnischemaField("perhaps", np.float64, (2,), NdarrayCodec(), True),
            UnischemaField("packed", np.int64, (2, None), CompressedNdarrayCodec(), False),
            UnischemaField("rgb", np.uint8, (size, size, 3), CompressedImageCodec("png"), False),
            UnischemaField("deep", np.uint16, (size, size + 1), CompressedImageCodec("png"), False),
            UnischemaField("photo", np.uint8, (None, None, 3), CompressedImageCodec("jpeg", 90), False),
            UnischemaField("shade", np.uint8, (None, None), CompressedImageCodec("jpeg", 90), False),
        ],
    )


def windows_of(url: str, kinds: Unischema, overlap: bool) -> list[list[int]]:
    """The ids of the rows of each window of three."""
    fields = {row: [kinds.fields["id"], kinds.fields["small"]] for row in range(3)}
    ngram = NGram(fields, 2, kinds.fields["id"], overlap)
    with make_reader(url, ngram, reader_pool_type="dummy") as reader:
        return sorted([int(window[row].id) for row in range(3)] for window in reader)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--files", type=int, default=2, help="of each partition")
    args = parser.parse_args()
    path = (args.directory / "set").resolve()
    kinds = schema(args.size)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    # Petastorm's own index code runs in one Spark job; a small heap is enough.
    spark = builder.config("spark.driver.memory", "512m").config("spark.driver.host", "127.0.0.1").getOrCreate()
    url = f"file://{path}"
    with materialize_dataset(spark, url, kinds, row_group_size_mb=1):
        rows = [dict_to_spark_row(kinds, row(number, args.size)) for number in range(args.rows)]
        frame = spark.createDataFrame(rows, kinds.as_spark_schema()).coalesce(args.files)
        frame.write.partitionBy("part").mode("overwrite").parquet(url)
    indexers = [
        SingleFieldIndexer("by id", "id"),
        SingleFieldIndexer("by kind", "kind"),
        FieldNotNullIndexer("has label", "label"),
    ]
    build_rowgroup_index(url, spark.sparkContext, indexers)
    spark.stop()
    expected: dict[str, np.ndarray] = {}
    with make_reader(url, reader_pool_type="dummy", shuffle_row_groups=False) as reader:
        for given in reader:
            for name, value in given._asdict().items():
                if value is not None:
                    text = isinstance(value, (str, Decimal))
                    expected[f"{name}/{given.id}"] = np.array(str(value)) if text else np.asarray(value)
    assert len({key for key in expected if key.startswith("id/")}) == args.rows
    windows = {str(overlap): windows_of(url, kinds, overlap) for overlap in (True, False)}
    (args.directory / "windows.json").write_text(json.dumps(windows))
    np.savez_compressed(args.directory / "expected.npz", **expected)


main()
