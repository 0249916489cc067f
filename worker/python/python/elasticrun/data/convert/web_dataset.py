"""WebDataset: tar files whose members ``KEY.EXTENSION`` are the fields of a sample."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DataError
from .columns import Column
from .source import Source

if TYPE_CHECKING:
    import pyarrow as pa

#: Samples by which the columns are known.
_FIRST_SAMPLES = 1000

#: Samples and bytes of a batch.
_BATCH_SAMPLES, _BATCH_BYTES = 1000, 32 << 20

_MEMBER = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)$")

_TEXT = {"txt", "text", "transcript", "json", "html", "md"}
_INTEGERS = {"cls", "cls2", "class", "count", "index", "inx", "id"}

#: The key of a sample, as WebDataset names it.
_KEY = "__key__"

Sample = dict[str, Any]


class WebDataset(Source):
    """A tar file."""

    format = "webdataset"

    def __init__(self, path: Path, columns: Mapping[str, Column]) -> None:
        super().__init__(path)
        self._columns = columns

    def schema(self) -> pa.Schema:
        import itertools

        return self._schema_of(list(itertools.islice(self._samples(), _FIRST_SAMPLES)))

    def batches(self) -> Iterator[pa.RecordBatch]:
        schema: pa.Schema | None = None
        waiting: list[Sample] = []
        nbytes = 0
        for sample in self._samples():
            waiting.append(sample)
            nbytes += sum(len(value) for value in sample.values())
            enough = _FIRST_SAMPLES if schema is None else _BATCH_SAMPLES
            if len(waiting) >= enough or (nbytes >= _BATCH_BYTES and schema is not None):
                schema = schema or self._schema_of(waiting)
                yield self._batch(waiting, schema)
                waiting, nbytes = [], 0
        if waiting:
            yield self._batch(waiting, schema or self._schema_of(waiting))

    def _samples(self) -> Iterator[Sample]:
        """Consecutive members with one key."""
        sample: Sample = {}
        try:
            with self.path.open("rb") as raw, tarfile.open(fileobj=raw, mode="r|*") as archive:
                for member in archive:
                    found = _MEMBER.match(member.name) if member.isfile() else None
                    if found is None:
                        continue
                    key, field = found[1], found[2].lower()
                    if sample and sample[_KEY] != key:
                        yield sample
                        sample = {}
                    if field in sample:
                        raise DataError(f"{self.path}: sample {key!r} has two members {field!r}")
                    content = archive.extractfile(member)
                    assert content is not None
                    sample[_KEY] = key
                    sample[field] = content.read()
                    self.read = raw.tell()
        except (tarfile.TarError, EOFError, OSError) as error:
            raise DataError(f"{self.path}: is damaged: {error}") from error
        if sample:
            yield sample

    def _schema_of(self, samples: list[Sample]) -> pa.Schema:
        import pyarrow as pa

        names = dict.fromkeys(name for sample in samples for name in sample if name != _KEY)
        kinds = {name: self._columns.get(name) or _kind(name) for name in [*sorted(names), *self._columns]}
        return pa.schema([(_KEY, pa.string()), *kinds.items()])

    def _batch(self, samples: list[Sample], schema: pa.Schema) -> pa.RecordBatch:
        import pyarrow as pa

        for sample in samples:
            for name in sample:
                if schema.get_field_index(name) < 0:
                    raise DataError(
                        f"{self.path}: sample {sample[_KEY]!r} has a member {name!r}, which none of the first"
                        f" {_FIRST_SAMPLES:,} has: give --column {name}:binary"
                    )
        arrays = [pa.array([self._value(sample, field) for sample in samples], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _value(self, sample: Sample, field: pa.Field) -> Any:
        import pyarrow as pa

        value = sample.get(field.name)
        if value is None or field.name == _KEY or pa.types.is_binary(field.type):
            return value
        try:
            text = value.decode()
            if pa.types.is_integer(field.type):
                return int(text)
            if pa.types.is_floating(field.type):
                return float(text)
            return text
        except ValueError as error:
            raise DataError(
                f"{self.path}: {field.name!r} of sample {sample[_KEY]!r} is no {field.type}: {error}; --column"
                f" {field.name}:binary keeps the bytes"
            ) from error


def _kind(name: str) -> Any:
    import pyarrow as pa

    last = name.rpartition(".")[2]
    return pa.string() if last in _TEXT else pa.int64() if last in _INTEGERS else pa.binary()
