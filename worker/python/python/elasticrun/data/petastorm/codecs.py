"""Decodes the columns of Petastorm's codecs."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any

from ... import _native
from ...errors import DataError
from .metadata import Field

if TYPE_CHECKING:
    import numpy as np

    from ..batch import Batch

__all__ = ["decode"]


def decode(field: Field, batch: Batch, kind: str) -> np.ndarray[Any, Any]:
    """Decodes a stored column of a batch with the Arrow type ``kind``. The result has the shape (rows, *shape) if all rows have one
    shape. Otherwise it is an array of objects, with None for null.

    Raises:
        DataError: a value does not match its codec. The error names the field.
    """
    try:
        if field.codec is None or field.codec.name == "ScalarCodec":
            return _scalars(field, batch, kind)
        if field.codec.name == "NdarrayCodec":
            return _arrays(field, batch)
        if field.codec.name == "CompressedNdarrayCodec":
            return _stacked(field, [_unpacked(value) for value in batch.values_of(field.name)])
        return _images(field, batch)
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, DataError) as error:
        name = field.codec.name if field.codec else "its type"
        raise DataError(f"column {field.name}: a value is not as {name} writes it: {error}") from error


def _scalars(field: Field, batch: Batch, kind: str) -> np.ndarray[Any, Any]:
    import numpy as np

    if field.dtype == "Decimal":
        # Petastorm returns decimal numbers as text.
        return _objects([None if value is None else str(value) for value in batch.arrow()[field.name].to_pylist()])
    if field.shape:
        return _lists(field, batch)
    values = batch.stored(field.name)
    if field.dtype in ("str_", "unicode_", "string_", "bytes_", "object_"):
        return values
    if field.dtype in ("datetime64", "timedelta64"):
        return values if values.dtype == object else _times(kind, values)
    if values.dtype == object:
        number = np.dtype(field.dtype).type
        return _objects([None if value is None else number(value) for value in values])
    return values.astype(field.dtype, copy=False)


def _lists(field: Field, batch: Batch) -> np.ndarray[Any, Any]:
    """Stored lists: one array if all have one length, else an array of arrays."""
    import numpy as np

    try:
        return batch.stored(field.name)
    except TypeError:
        values = batch.arrow()[field.name].to_pylist()
    element = np.sctypeDict.get(field.dtype)
    return _objects([None if value is None else np.asarray(value, dtype=element) for value in values])


def _times(kind: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Dates and times in the unit of their column."""
    unit = next((unit for name, unit in _UNITS.items() if name in kind), None)
    if unit is None:
        return values
    return values.astype("int64").view(f"datetime64[{unit}]")


_UNITS = {"Date32": "D", "Date64": "ms", "Nanosecond": "ns", "Microsecond": "us", "Millisecond": "ms", "Second": "s",
          "(ns": "ns", "(µs": "us", "(us": "us", "(ms": "ms", "(s": "s"}  # fmt: skip


def _arrays(field: Field, batch: Batch) -> np.ndarray[Any, Any]:
    """Arrays in NumPy's file format. If all have the same header, their data is one array without a copy."""
    import numpy as np

    raw = batch.stored(field.name)
    if raw.dtype != np.uint8 or raw.ndim != 2 or not len(raw):
        return _stacked(field, [_array(value) for value in batch.values_of(field.name)])
    first = io.BytesIO(raw[0].tobytes())
    version = np.lib.format.read_magic(first)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, column_major, dtype = read(first)
    length = first.tell()
    same = (raw[:, :length] == raw[0, :length]).all()
    if column_major or dtype.hasobject or not same:
        return _stacked(field, [_array(value.tobytes()) for value in raw])
    if raw.shape[1] - length != dtype.itemsize * int(np.prod(shape, dtype=np.int64)):
        raise ValueError("its bytes are not as many as its shape needs")
    if not all(shape):
        return np.empty((len(raw), *shape), dtype)
    return raw[:, length:].view(dtype).reshape(len(raw), *shape)


def _array(value: bytes | None) -> np.ndarray[Any, Any] | None:
    import numpy as np

    return None if value is None else np.lib.format.read_array(io.BytesIO(value), allow_pickle=False)


def _unpacked(value: bytes | None) -> np.ndarray[Any, Any] | None:
    if value is None:
        return None
    with zipfile.ZipFile(io.BytesIO(value)) as packed:
        return _array(packed.read("arr.npy"))


def _images(field: Field, batch: Batch) -> np.ndarray[Any, Any]:
    import numpy as np

    decoded = _native.images(batch.values_of(field.name))
    return _stacked(field, [None if image is None else np.asarray(image) for image in decoded])


def _stacked(field: Field, values: list[np.ndarray[Any, Any] | None]) -> np.ndarray[Any, Any]:
    """One array if all values have the same type and shape; else an array of objects. Without values, the type and the shape are
    those of the field."""
    import numpy as np

    number = np.sctypeDict.get(field.dtype)
    if not values and None not in field.shape and number is not None and issubclass(number, (np.number, np.bool_)):
        return np.empty((0, *field.shape), dtype=number)
    present = [value for value in values if value is not None]
    kinds = {(value.shape, value.dtype.str) for value in present}
    if len(present) == len(values) and len(kinds) == 1:
        return np.stack(present)
    return _objects(values)


def _objects(values: list[Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    array = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        array[index] = value
    return array
