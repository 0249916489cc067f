"""A data frame becomes a data set of which each row is read once."""

from __future__ import annotations

import pytest
import training
from jobs import Bench
from pyspark import SparkContext
from pyspark.sql import SparkSession

import elasticrun.spark

ROWS = 1000


def test_each_row_of_a_data_frame_is_read_once(bench: Bench, spark: SparkContext):
    session = SparkSession(spark)
    frame = session.range(ROWS).selectExpr("id", "array(cast(id as float), 1f) as features")
    data = elasticrun.spark.dataset(frame, str(bench.folder), row_group_bytes="4096")
    assert data.rows == ROWS
    shares = elasticrun.spark.run(training.reads, (data,), num_proc=3, spark_context=spark)
    assert sorted(row for share in shares for row in share) == list(range(ROWS))
    assert all(abs(len(share) - ROWS / 3) <= 1 for share in shares)
    data.delete(frame)
    assert not any(bench.folder.iterdir())


def test_an_empty_data_frame_is_refused(bench: Bench, spark: SparkContext):
    with pytest.raises(ValueError, match="no rows"):
        elasticrun.spark.dataset(SparkSession(spark).range(0), str(bench.folder))
