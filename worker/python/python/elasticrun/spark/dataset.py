"""A Spark data frame as a data set that workers read elastically."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..data import ParquetDataset

__all__ = ["SparkDataset", "dataset"]


@dataclass(frozen=True)
class SparkDataset:
    """Parquet files that Spark wrote. The object can be pickled and sent to workers.

    Attributes:
        path: directory of the files, as Spark's file systems name it.
        rows: number of rows.
    """

    path: str
    rows: int

    def open(self, *, batch_size: int, **settings: Any) -> ParquetDataset:
        """Opens the data set in a worker. Its rows are divided among all workers; see :class:`elasticrun.data.ParquetDataset`."""
        from ..data import ParquetDataset

        return ParquetDataset(store.for_reader(self.path), batch_size=batch_size, **settings)

    def delete(self, frame: DataFrame) -> None:
        """Deletes the files, with the file system of the session of ``frame``.

        Raises:
            OSError: some files still exist. Some file systems raise an exception of Java instead.
        """
        store.delete(frame.sparkSession, self.path)


def dataset(frame: DataFrame, directory: str, *, row_group_bytes: int | str = 8 << 20) -> SparkDataset:
    """Writes a data frame as Parquet, for workers of :func:`elasticrun.spark.run`.

    Args:
        frame: the data frame, with columns of numbers, strings, bytes, and lists of numbers.
        directory: parent of the new directory, which the driver and all executors can access: a path of a shared file
            system, ``s3://``, ``s3a://`` or ``gs://``.
        row_group_bytes: approximate size of a row group. Smaller groups shuffle better, and fewer rows move when workers change.

    Raises:
        ValueError: there are no rows, or workers cannot read the directory.
    """
    store.for_reader(directory)
    path = f"{store.for_spark(directory).rstrip('/')}/elasticrun-{uuid.uuid4().hex}"
    frame.write.option("parquet.block.size", str(row_group_bytes)).parquet(path)
    rows = frame.sparkSession.read.parquet(path).count()
    if rows == 0:
        store.delete(frame.sparkSession, path)
        raise ValueError("the data frame has no rows: expected at least one")
    return SparkDataset(path, rows)
