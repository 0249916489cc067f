"""What all files that are converted have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class Source(ABC):
    """A file that is converted.

    Args:
        path: of the file.

    Attributes:
        format: as ``--format`` names it.
        size: its bytes.
        read: bytes that were read.
    """

    format: str

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self.read = 0

    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns, by the first rows.

        Raises:
            DataError: the file cannot be read.
        """

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows.

        Raises:
            DataError: names the file and the row.
        """
