"""JSON lines: an object for each row."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DataError
from .columns import Column
from .source import Source

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes that are parsed at a time. The columns are those of the first ones.
_BLOCK = 16 << 20


class JsonLines(Source):
    """A file of JSON lines, which may be compressed."""

    format = "jsonl"

    def __init__(self, path: Path, columns: Mapping[str, Column]) -> None:
        super().__init__(path)
        self._columns = columns

    def schema(self) -> pa.Schema:
        with self._reader(None) as reader:
            return reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        # A later object with another field would lose it.
        schema = self.schema()
        nulls = [field.name for field in schema if pa.types.is_null(field.type)]
        if nulls:
            raise DataError(
                f"{self.path}: all values of {nulls[0]!r} in the first rows are null: give --column {nulls[0]}:TYPE"
            )
        with self._reader(schema) as reader:
            while True:
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    return
                except pa.ArrowInvalid as error:
                    raise self._unreadable(error, schema) from error
                yield batch

    def _unreadable(self, error: Exception, schema: pa.Schema | None = None) -> DataError:
        if "straddling" in str(error):
            return DataError(f"{self.path}: has a line of more than {_BLOCK >> 20} MiB")
        where = str(self.path) if schema is None else self._first_unlike(schema)
        return DataError(
            f"{where}: {error}; --column NAME:TYPE gives a column that the first rows do not show, or its type"
        )

    def _first_unlike(self, schema: pa.Schema) -> str:
        """The first line that is no object of these columns. The parser does not name it."""
        import pyarrow as pa

        with self._file() as (file, _), io.TextIOWrapper(file, errors="replace") as text:
            for number, line in enumerate(text, 1):
                try:
                    found = json.loads(line) if line.strip() else {}
                except ValueError:
                    return f"{self.path}, line {number}"
                for name, value in found.items() if isinstance(found, dict) else ():
                    is_known = schema.get_field_index(name) >= 0
                    if not is_known or (isinstance(value, float) and pa.types.is_integer(schema.field(name).type)):
                        return f"{self.path}, line {number}, {name!r}"
        return str(self.path)

    @contextlib.contextmanager
    def _file(self) -> Iterator[tuple[Any, Any]]:
        """The decompressed content, and the file."""
        import pyarrow as pa

        name = self.path.name.lower()
        codec = "gzip" if name.endswith(".gz") else "zstd" if name.endswith(".zst") else None
        with pa.OSFile(str(self.path)) as raw:
            yield (raw if codec is None else pa.CompressedInputStream(raw, codec)), raw

    @contextlib.contextmanager
    def _reader(self, schema: pa.Schema | None) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.json as pj

        fields = {} if schema is None else {field.name: field.type for field in schema}
        parse = pj.ParseOptions(
            explicit_schema=pa.schema(list({**fields, **self._columns}.items())),
            newlines_in_values=False,
            unexpected_field_behavior="infer" if schema is None else "error",
        )
        with self._file() as (file, raw):
            try:
                reader = pj.open_json(file, read_options=pj.ReadOptions(block_size=_BLOCK), parse_options=parse)
            except (pa.ArrowInvalid, OSError) as error:
                raise self._unreadable(error) from error
            yield _Counted(reader, raw, self)


class _Counted:
    """A reader that notes how much of the file is read."""

    def __init__(self, reader: Any, raw: Any, source: JsonLines) -> None:
        self._reader, self._raw, self._source = reader, raw, source
        self.schema = reader.schema

    def read_next_batch(self) -> pa.RecordBatch:
        batch = self._reader.read_next_batch()
        self._source.read = self._raw.tell()
        return batch
