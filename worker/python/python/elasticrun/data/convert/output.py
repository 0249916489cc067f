"""The Parquet files of a conversion."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


class Output:
    """Writes rows to files of a directory.

    Args:
        directory: an empty directory.
        row_group: bytes of a row group in memory.
        file_size: bytes of a file in memory; a file has at least one row group.
    """

    def __init__(self, directory: Path, row_group: int, file_size: int) -> None:
        self._directory = directory
        self._row_group, self._file_size = row_group, file_size
        self._schema: pa.Schema | None = None
        self._source: Path | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._writer: Any = None
        self._written = 0
        #: Numbers of rows and of files, and bytes of the files.
        self.rows = self.files = self.size = 0

    def write(self, batch: pa.RecordBatch, source: Path) -> None:
        """Adds rows.

        Raises:
            DataError: their columns are not those of the rows before.
        """
        import pyarrow as pa

        if self._schema is None:
            self._schema, self._source = batch.schema, source
        if not batch.schema.equals(self._schema):
            raise DataError(f"{source}: {_difference(batch.schema, self._schema)} in {self._source}")
        # Pieces of a large batch, so that no row group is much larger than the others.
        step = max(1, int(len(batch) * self._row_group / max(batch.nbytes, 1)))
        for first in range(0, len(batch), step):
            piece = batch.slice(first, step)
            # A slice counts its own bytes.
            nbytes = pa.table(piece).nbytes
            if self._waiting and self._waiting_bytes + nbytes > self._row_group * 5 // 4:
                self._flush()
            self._waiting.append(piece)
            self._waiting_bytes += nbytes
            if self._waiting_bytes >= self._row_group:
                self._flush()
        self.rows += len(batch)

    def close(self) -> None:
        """Ends the last file.

        Raises:
            DataError: there were no rows.
        """
        self._flush()
        self._end_file()
        if self.rows == 0:
            raise DataError("the sources have no rows")

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting)
        if self._writer is None:
            path = self._directory / f"part-{self.files:05d}.parquet"
            # Images are compressed already.
            compression = {field.name: "none" if pa.types.is_binary(field.type) else "zstd" for field in table.schema}
            self._writer = pq.ParquetWriter(path, table.schema, compression=compression, write_page_checksum=True)
            self.files += 1
        self._writer.write_table(table, row_group_size=len(table))
        self._written += self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
        if self._written >= self._file_size:
            self._end_file()

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self.size += (self._directory / f"part-{self.files - 1:05d}.parquet").stat().st_size
            self._writer, self._written = None, 0


def _difference(found: pa.Schema, expected: pa.Schema) -> str:
    for field in found:
        index = expected.get_field_index(field.name)
        if index < 0:
            return f"has a column {field.name!r}, which is not"
        if expected.field(index).type != field.type:
            return f"column {field.name!r} is {field.type}, and is {expected.field(index).type}"
    names = [field.name for field in expected if found.get_field_index(field.name) < 0]
    return f"has no column {names[0]!r}, which is" if names else "has its columns in another order than"
