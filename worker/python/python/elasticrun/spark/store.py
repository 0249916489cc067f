"""Where estimators keep their data and what they have trained: a directory that Spark and the workers reach."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Store"]

#: Schemes of Spark's file systems that the reader of data sets knows by another name.
_OF_READER = {"s3a": "s3", "s3n": "s3"}
_KNOWN = ("file", "gs", "s3", *_OF_READER)


class Store:
    """A directory: a path of a file system that all executors share, or a ``file://``, ``s3://``, ``s3a://`` or ``gs://``
    address.

    Spark writes there with its own settings and credentials; workers read with those of their environment (docs/data.md).

    Args:
        prefix_path: the directory. It is made when something is written.

    Raises:
        ValueError: it is an address of something else.
    """

    def __init__(self, prefix_path: str) -> None:
        for_reader(prefix_path)
        #: As Spark names it.
        self.prefix_path = for_spark(prefix_path).rstrip("/")

    @classmethod
    def create(cls, prefix_path: str) -> Store:
        """A store; programs for Horovod call it so."""
        return cls(prefix_path)

    def path(self, *names: str) -> str:
        """Something in it, as Spark names it."""
        return posixpath.join(self.prefix_path, *names)

    def checkpoint(self, run_id: str) -> str:
        """What a run has trained."""
        return self.path("runs", run_id, "checkpoint.pt")

    def __repr__(self) -> str:
        return f"Store({self.prefix_path!r})"


def for_spark(path: str) -> str:
    """A path as Spark takes it: one without a scheme is of the machine's file system, and not of Spark's default one."""
    if urlsplit(path).scheme:
        return path
    if not path.startswith("/"):
        raise ValueError(f"{path!r}: expected an absolute path, or an address such as s3://bucket/directory")
    return f"file://{path}"


def for_reader(path: str) -> str:
    """A path as :class:`elasticrun.data.ParquetDataset` takes it.

    Raises:
        ValueError: it has no reader for such addresses.
    """
    scheme = urlsplit(for_spark(path)).scheme
    if scheme not in _KNOWN:
        raise ValueError(
            f"{path!r}: workers cannot read {scheme}:// : expected a path, file://, s3://, s3a:// or gs://"
        )
    return for_spark(path).replace(scheme, _OF_READER.get(scheme, scheme), 1)


def read(session: SparkSession, path: str) -> bytes | None:
    """A file by Spark's file systems; none if there is none."""
    system, place = _found(session, path)
    if not system.exists(place):
        return None
    stream = system.open(place)
    try:
        return bytes(session._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
    finally:
        stream.close()


def write(session: SparkSession, path: str, content: bytes) -> None:
    """Writes a file by Spark's file systems, over what was there."""
    system, place = _found(session, path)
    stream = system.create(place, True)
    try:
        # py4j makes an array of bytes of it.
        stream.write(bytearray(content))
    finally:
        stream.close()


def delete(session: SparkSession, path: str) -> None:
    """Deletes a file, or a directory with all that is in it, if it is there."""
    system, place = _found(session, path)
    system.delete(place, True)


def _found(session: SparkSession, path: str) -> tuple[Any, Any]:
    place = session._jvm.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(session._jsc.hadoopConfiguration()), place
