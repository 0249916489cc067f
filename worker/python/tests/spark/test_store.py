"""Addresses of a store, as Spark takes them and as workers do."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace

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


@pytest.mark.parametrize(
    ("deletes", "exists", "fails"), [(True, False, False), (False, False, False), (False, True, True)]
)
def test_what_still_exists_was_not_deleted(monkeypatch: pytest.MonkeyPatch, deletes: bool, exists: bool, fails: bool):
    """Local file systems answer false if a permission is missing, and also for a path that does not exist."""
    system = SimpleNamespace(delete=lambda path, recursive: deletes, exists=lambda path: exists)
    monkeypatch.setattr("elasticrun.spark.store._resolve", lambda session, path: (system, path))
    with pytest.raises(OSError, match="/x cannot be deleted") if fails else contextlib.nullcontext():
        store.delete(None, "/x")


def test_a_file_that_is_replaced_is_whole_at_each_moment(bench: Bench, spark: SparkContext, tmp_path: Path):
    session = SparkSession(spark)
    place = Store(str(tmp_path)).checkpoint("a run")
    for written in (b"first", b"second"):
        store.replace(session, place, written)
        assert store.read(session, place) == written
    folder = tmp_path / "runs/a run"
    assert [path.name for path in folder.iterdir() if not path.name.startswith(".")] == ["checkpoint.pt"]
    # The program was killed while it wrote the next one, and then between the two renames.
    (folder / "checkpoint.pt.new").write_bytes(b"th")
    assert store.read(session, place) == b"second"
    store.delete(session, f"{place}.new")
    for suffix in ("", ".crc"):
        name = f".checkpoint.pt{suffix}" if suffix else "checkpoint.pt"
        (folder / name).rename(folder / name.replace(".pt", ".pt.old"))
    assert store.read(session, place) == b"second"
    store.replace(session, place, b"third")
    assert store.read(session, place) == b"third"
