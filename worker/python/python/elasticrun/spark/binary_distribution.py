"""Sends the program to executors through Spark. Its name contains release and hash, and executors verify the hash."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .error_text import UnusableExecutorError

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["DistributedBinary", "distribute"]


@dataclass(frozen=True)
class DistributedBinary:
    """A file that Spark sends to executors: its name there, and its SHA-256 hash in hexadecimal digits."""

    name: str
    sha256: str

    def find(self) -> str:
        """The path of the file on this executor.

        Raises:
            UnusableExecutorError: the file has another hash than the one that was sent.
        """
        from pyspark import SparkFiles

        path = SparkFiles.get(self.name)
        found = _hash(Path(path))
        if found != self.sha256:
            raise UnusableExecutorError(
                f"{self.name} on this executor has the hash {found}, not the one that was sent: not run"
            )
        return str(path)


def distribute(context: SparkContext, binary: Path, version: str) -> DistributedBinary:
    """Registers the program with Spark, which sends it to all executors, also to later ones."""
    sha256 = _hash(binary)
    name = f"elasticrun-{version}-{sha256[:16]}"
    # Spark keeps the file name, and reads the file for each executor as long as the context lives.
    copy = _folder() / name
    if not copy.exists():
        partial = copy.with_suffix(".partial")
        shutil.copyfile(binary, partial)
        os.chmod(partial, 0o755)
        partial.rename(copy)
    context.addFile(str(copy))
    return DistributedBinary(name, sha256)


@functools.cache
def _folder() -> Path:
    """A temporary directory that exists until this process exits."""
    folder = tempfile.mkdtemp(prefix="elasticrun-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()
