"""MDS: the shards of MosaicML Streaming, as ``index.json`` describes them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DataError
from .source import Source

if TYPE_CHECKING:
    import pyarrow as pa

#: Samples of a batch.
_BATCH_SAMPLES = 1000

#: Encodings of numbers, and the types of NumPy that they store.
_NUMBERS = {
    "int": "int64",
    **{name: name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
}
_NUMBERS |= {name: name for name in ("float16", "float32", "float64")}

_BYTES = {"bytes", "jpeg", "png", "jpeg_array", "jpegarray"}
_TEXT = {"str", "json", "str_decimal"}

#: In arrays of any shape: the types of the lengths, by the lowest two bits of the first byte.
_LENGTHS = {0: "u1", 1: "<u2", 2: "<u4", 3: "<u8"}

#: A type of pyarrow, and what makes a value of the bytes.
Decoder = tuple[Any, Callable[[bytes], Any]]


class MdsShard(Source):
    """A shard."""

    format = "mds"

    def __init__(self, directory: Path, entry: dict[str, Any], index: int) -> None:
        where = f"{directory / 'index.json'}: shard {index}"
        if entry.get("format") != "mds" or entry.get("version") != 2:
            raise DataError(
                f"{where} is {entry.get('format')!r} version {entry.get('version')!r}: expected 'mds' version 2"
            )
        self._names: list[str] = entry["column_names"]
        self._sizes: list[int | None] = entry["column_sizes"]
        self._decoders = [
            _decoder(where, name, kind) for name, kind in zip(self._names, entry["column_encodings"], strict=True)
        ]
        self._samples: int = entry["samples"]
        raw, packed = directory / entry["raw_data"]["basename"], entry.get("zip_data")
        self._codec: str | None = None
        path = raw
        if not raw.exists() and packed is not None:
            path = directory / packed["basename"]
            self._codec = _codec(where, entry.get("compression"))
        if not path.exists():
            raise DataError(f"{path}: no such file, and {where} names it")
        super().__init__(path)

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([(name, kind) for name, (kind, _) in zip(self._names, self._decoders, strict=True)])

    def batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        content = self._content()
        schema = self.schema()
        for first in range(0, self._samples, _BATCH_SAMPLES):
            rows = [self._sample(content, index) for index in range(first, min(first + _BATCH_SAMPLES, self._samples))]
            arrays = [pa.array([row[column] for row in rows], field.type) for column, field in enumerate(schema)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            self.read = self.size * min(first + _BATCH_SAMPLES, self._samples) // max(self._samples, 1)

    def _content(self) -> memoryview:
        import pyarrow as pa

        if self._codec is None:
            return memoryview(self.path.read_bytes())
        try:
            with pa.OSFile(str(self.path)) as raw, pa.CompressedInputStream(raw, self._codec) as file:
                return memoryview(file.read())
        except OSError as error:
            raise DataError(f"{self.path}: is damaged: {error}") from error

    def _sample(self, content: memoryview, index: int) -> list[Any]:
        try:
            (count,) = struct.unpack_from("<I", content)
            begin, end = struct.unpack_from("<II", content, 4 + 4 * index)
            if count != self._samples or not begin <= end <= len(content):
                raise ValueError(f"{count} samples, and bytes {begin} to {end} of {len(content)}")
            data = content[begin:end]
            sizes, at = [], 0
            for size in self._sizes:
                if not size:
                    (size,) = struct.unpack_from("<I", data, at)
                    at += 4
                sizes.append(size)
            if at + sum(sizes) > len(data):
                raise ValueError(f"columns of {sum(sizes)} bytes in {len(data)}")
            values = []
            for size, (_, decode) in zip(sizes, self._decoders, strict=True):
                values.append(decode(bytes(data[at : at + size])))
                at += size
            return values
        except (struct.error, ValueError) as error:
            raise DataError(f"{self.path}: sample {index} is damaged: {error}") from error


def shards(directory: Path, index: object) -> Iterator[MdsShard]:
    """The shards of a directory.

    Raises:
        DataError: the index is none, or a shard cannot be converted.
    """
    listed = index.get("shards") if isinstance(index, dict) else None
    if not isinstance(listed, list) or not listed:
        raise DataError(f"{directory / 'index.json'}: lists no shards of MDS")
    for number, entry in enumerate(listed):
        try:
            yield MdsShard(directory, entry, number)
        except (KeyError, TypeError) as error:
            raise DataError(f"{directory / 'index.json'}: shard {number} has no {error}") from error


def _codec(where: str, compression: object) -> str:
    name = str(compression).partition(":")[0]
    known = {"zstd": "zstd", "gz": "gzip", "br": "brotli", "bz2": "bz2"}
    if name not in known:
        raise DataError(f"{where} is compressed by {name!r}: expected {', '.join(known)}, or the raw file beside it")
    return known[name]


def _decoder(where: str, name: str, encoding: str) -> Decoder:
    import numpy as np
    import pyarrow as pa

    kind, *details = encoding.split(":")
    if kind in _BYTES:
        return pa.binary(), bytes
    if kind in _TEXT:
        return pa.string(), bytes.decode
    if kind == "str_int":
        return pa.int64(), int
    if kind == "str_float":
        return pa.float64(), float
    if kind in _NUMBERS:
        stored = np.dtype(_NUMBERS[kind])
        return pa.from_numpy_dtype(stored), lambda data: np.frombuffer(data, stored)[0]
    if kind == "ndarray" and details:
        stored = np.dtype(details[0])
        values = pa.from_numpy_dtype(stored)
        if len(details) == 2:
            length = int(np.prod([int(dim) for dim in details[1].split(",")]))
            return pa.list_(values, length), lambda data: np.frombuffer(data, stored)
        return pa.list_(values), lambda data: _one_dimension(data, stored)
    raise DataError(
        f"{where}: column {name!r} is stored as {encoding!r}, which is not converted: write it as bytes, numbers, str, json, jpeg,"
        " png or ndarray:DTYPE"
    )


def _one_dimension(data: bytes, stored: Any) -> Any:
    """The values of an array of any length: a byte with the number of dimensions, the lengths, the values."""
    import numpy as np

    dimensions, lengths = data[0] >> 2, np.dtype(_LENGTHS[data[0] & 3])
    if dimensions != 1:
        raise ValueError(f"an array of {dimensions} dimensions: only those of one are converted")
    return np.frombuffer(data, stored, offset=1 + lengths.itemsize)
