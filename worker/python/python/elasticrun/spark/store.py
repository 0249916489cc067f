"""The directory of an estimator's data and checkpoints, which Spark and the workers can access."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Store"]

#: Schemes of Spark's file systems, and their names in the data set reader.
_READER_SCHEMES = {"s3a": "s3", "s3n": "s3"}
#: Suffixes of a checkpoint that is being written, and of the one before.
_NEW, _OLD = ".new", ".old"
_KNOWN = ("file", "gs", "s3", *_READER_SCHEMES)


class Store:
    """A directory: a path of a file system that all executors share, or a ``file://``, ``s3://``, ``s3a://`` or ``gs://``
    address.

    Spark writes with its own settings and credentials. Workers read with those of their environment (docs/data.md).

    Args:
        prefix_path: the directory. The first write creates it.

    Raises:
        ValueError: the address has another scheme.
    """

    def __init__(self, prefix_path: str) -> None:
        for_reader(prefix_path)
        #: The directory as Spark names it.
        self.prefix_path = for_spark(prefix_path).rstrip("/")

    @classmethod
    def create(cls, prefix_path: str) -> Store:
        """Creates a store. The name exists for Horovod compatibility."""
        return cls(prefix_path)

    def path(self, *names: str) -> str:
        """A path in the store, as Spark names it."""
        return posixpath.join(self.prefix_path, *names)

    def checkpoint(self, run_id: str) -> str:
        """The path of the checkpoint of a run."""
        return self.path("runs", run_id, "checkpoint.pt")

    def __repr__(self) -> str:
        return f"Store({self.prefix_path!r})"


def for_spark(path: str) -> str:
    """A path for Spark. A path without a scheme refers to the local file system, not to Spark's default one."""
    if urlsplit(path).scheme:
        return path
    if not path.startswith("/"):
        raise ValueError(f"{path!r}: expected an absolute path, or an address such as s3://bucket/directory")
    return f"file://{path}"


def for_reader(path: str) -> str:
    """A path for :class:`elasticrun.data.ParquetDataset`.

    Raises:
        ValueError: the data set reader does not support the scheme.
    """
    scheme = urlsplit(for_spark(path)).scheme
    if scheme not in _KNOWN:
        raise ValueError(
            f"{path!r}: workers cannot read {scheme}:// : expected a path, file://, s3://, s3a:// or gs://"
        )
    return for_spark(path).replace(scheme, _READER_SCHEMES.get(scheme, scheme), 1)


def read(session: SparkSession, path: str) -> bytes | None:
    """Reads a file with Spark's file systems. Returns None if it does not exist.

    If :func:`replace` was interrupted, this is the previous content.
    """
    for name in (path, path + _OLD):
        system, location = _resolve(session, name)
        if system.exists(location):
            stream = system.open(location)
            try:
                return bytes(session._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()
    return None


def replace(session: SparkSession, path: str, content: bytes) -> None:
    """Writes a file as :func:`write` does. If this process dies meanwhile, :func:`read` returns the previous content.

    Raises:
        OSError: the file system does not rename the file.
    """
    write(session, path + _NEW, content)
    system, location = _resolve(session, path)
    old, new = (_resolve(session, path + suffix)[1] for suffix in (_OLD, _NEW))
    if system.exists(location):
        # Not all file systems rename to an existing file.
        system.delete(old, False)
        _rename(system, location, old)
    _rename(system, new, location)
    system.delete(old, False)


def _rename(system: Any, source: Any, target: Any) -> None:
    if not system.rename(source, target):
        raise OSError(f"cannot rename {source.toString()} to {target.toString()}")


def write(session: SparkSession, path: str, content: bytes) -> None:
    """Writes a file with Spark's file systems, and replaces an existing one."""
    system, location = _resolve(session, path)
    stream = system.create(location, True)
    try:
        # py4j converts a bytearray to a Java byte array.
        stream.write(bytearray(content))
    finally:
        stream.close()


def list_times(session: SparkSession, directory: str) -> dict[str, int]:
    """The names in a directory with their times of modification in milliseconds. Empty if it does not exist."""
    system, location = _resolve(session, directory)
    if not system.exists(location):
        return {}
    return {status.getPath().getName(): status.getModificationTime() for status in system.listStatus(location)}


def delete(session: SparkSession, path: str) -> None:
    """Deletes a file, or a directory with its contents, if it exists.

    Raises:
        OSError: a part of it still exists. Some file systems raise an exception of Java instead.
    """
    system, location = _resolve(session, path)
    # The answer is false also for a path that does not exist.
    if not system.delete(location, True) and system.exists(location):
        raise OSError(f"{path} cannot be deleted: look at its permissions and at its file system")


def _resolve(session: SparkSession, path: str) -> tuple[Any, Any]:
    location = session._jvm.org.apache.hadoop.fs.Path(path)
    return location.getFileSystem(session._jsc.hadoopConfiguration()), location
