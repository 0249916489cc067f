"""A data frame of Spark as a data set that workers read elastically."""

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
    """Parquet files that Spark wrote. It travels to workers as it is.

    Attributes:
        path: their directory, as Spark names it.
        rows: how many there are.
    """

    path: str
    rows: int

    def open(self, *, batch_size: int, **settings: Any) -> ParquetDataset:
        """In a worker: the rows, shared out over all workers; see :class:`elasticrun.data.ParquetDataset`."""
        from ..data import ParquetDataset

        return ParquetDataset(store.for_reader(self.path), batch_size=batch_size, **settings)

    def delete(self, frame: DataFrame) -> None:
        """Deletes the files, by the file system of the session that ``frame`` belongs to."""
        store.delete(frame.sparkSession, self.path)


def dataset(frame: DataFrame, directory: str, *, row_group_bytes: int | str = 8 << 20) -> SparkDataset:
    """Writes a data frame as Parquet, for workers of :func:`elasticrun.spark.run`.

    Args:
        frame: what is to be read; columns of numbers, strings, bytes, and lists of numbers.
        directory: where a directory of its own is made: one that the driver and all executors reach, as a path of a shared
            file system, ``s3://``, ``s3a://`` or ``gs://``.
        row_group_bytes: about how large a row group is. Smaller ones shuffle better, and move less when workers change.

    Raises:
        ValueError: there are no rows, or workers cannot read from there.
    """
    store.for_reader(directory)
    path = f"{store.for_spark(directory).rstrip('/')}/elasticrun-{uuid.uuid4().hex}"
    frame.write.option("parquet.block.size", str(row_group_bytes)).parquet(path)
    rows = frame.sparkSession.read.parquet(path).count()
    if rows == 0:
        store.delete(frame.sparkSession, path)
        raise ValueError("the data frame has no rows: expected at least one")
    return SparkDataset(path, rows)
