"""The program for executors that do not have it: sent by Spark, named by release and hash, checked before it is run."""

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

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Delivered", "deliver"]


@dataclass(frozen=True)
class Delivered:
    """A file that Spark brings to executors: its name there, and its hash (SHA-256, hexadecimal digits)."""

    name: str
    sha256: str

    def find(self) -> str:
        """Its path on this executor.

        Raises:
            RuntimeError: it is not what was sent, or may not be run here.
        """
        from pyspark import SparkFiles

        path = SparkFiles.get(self.name)
        found = _hash(Path(path))
        if found != self.sha256:
            raise RuntimeError(
                f"elasticrun: {self.name} on this executor has the hash {found}, not the one that was sent: not run"
            )
        return str(path)


def deliver(context: SparkContext, binary: Path, version: str) -> Delivered:
    """Has Spark bring the program to executors, those of later as well."""
    sha256 = _hash(binary)
    name = f"elasticrun-{version}-{sha256[:16]}"
    # Spark names a file as it is named here, and reads it whenever an executor asks, as long as the context lives.
    copy = _folder() / name
    if not copy.exists():
        partial = copy.with_suffix(".partial")
        shutil.copyfile(binary, partial)
        os.chmod(partial, 0o755)
        partial.rename(copy)
    context.addFile(str(copy))
    return Delivered(name, sha256)


@functools.cache
def _folder() -> Path:
    """A directory that is there as long as this process."""
    folder = tempfile.mkdtemp(prefix="elasticrun-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()
