"""Arrow files: those of the cache of Hugging Face datasets, and of ``save_to_disk``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import DataError
from .source import Source

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowFile(Source):
    """A file or a stream of record batches."""

    format = "arrow"

    def schema(self) -> pa.Schema:
        with self._open() as (reader, _):
            return reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with self._open() as (reader, file):
            try:
                if isinstance(reader, pa.ipc.RecordBatchFileReader):
                    for index in range(reader.num_record_batches):
                        yield reader.get_batch(index)
                        self.read = self.size * (index + 1) // reader.num_record_batches
                else:
                    for batch in reader:
                        yield batch
                        self.read = file.tell()
            except (pa.ArrowInvalid, OSError) as error:
                raise DataError(f"{self.path}: is damaged: {error}") from error

    @contextlib.contextmanager
    def _open(self) -> Iterator[tuple[Any, Any]]:
        import pyarrow as pa

        with pa.memory_map(str(self.path)) as file:
            try:
                reader = pa.ipc.open_stream(file)
            except pa.ArrowInvalid:
                file.seek(0)
                try:
                    reader = pa.ipc.open_file(file)
                except pa.ArrowInvalid as error:
                    raise DataError(f"{self.path}: is no Arrow file: {error}") from error
            yield reader, file
