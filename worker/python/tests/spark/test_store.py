"""Addresses of a store, as Spark takes them and as workers do."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import Bench
from pyspark import SparkContext
from pyspark.sql import SparkSession

from elasticrun.spark import store
from elasticrun.spark.store import Store


@pytest.mark.parametrize(
    ("given", "spark", "reader"),
    [
        ("/shared/tmp/", "file:///shared/tmp", "file:///shared/tmp"),
        ("file:///shared/tmp", "file:///shared/tmp", "file:///shared/tmp"),
        ("s3://bucket/tmp", "s3://bucket/tmp", "s3://bucket/tmp"),
        ("s3a://bucket/s3a/", "s3a://bucket/s3a", "s3://bucket/s3a"),
        ("gs://bucket/tmp", "gs://bucket/tmp", "gs://bucket/tmp"),
    ],
)
def test_spark_and_workers_name_a_directory_each_in_their_way(given: str, spark: str, reader: str):
    assert Store.create(given).path("data") == f"{spark}/data"
    assert store.for_reader(Store(given).path("data")) == f"{reader}/data"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("hdfs://name/tmp", "workers cannot read hdfs://"),
        ("tmp", "'tmp': expected an absolute path"),
        ("", "absolute path"),
    ],
)
def test_what_workers_cannot_reach_is_refused(given: str, message: str):
    with pytest.raises(ValueError, match=message):
        Store(given)


def test_files_are_written_read_and_deleted_by_spark(bench: Bench, spark: SparkContext, tmp_path: Path):
    session = SparkSession(spark)
    content = bytes(range(256)) * 5000
    place = Store(str(tmp_path)).checkpoint("a run")
    assert store.read(session, place) is None
    for written in (b"", content):
        store.write(session, place, written)
        assert store.read(session, place) == written
    store.delete(session, place)
    store.delete(session, place)
    assert store.read(session, place) is None
