"""Batches: the rows of a step."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import _native
from . import columns
from .forms import Form, Image, Nest, further_names

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import torch

    #: Decodes a stored column of a batch.
    Decoder: TypeAlias = Callable[["Batch", str], np.ndarray[Any, Any]]

__all__ = ["Batch", "Columns"]


class _NoArray(TypeError):
    """A column has a type that NumPy lacks."""


class Columns:
    """What the batches of a data set have in common.

    Attributes:
        kinds: the Arrow types of the columns, by name.
        forms: the forms that the user has chosen, by name.
        threads: number of threads that decode images.
        objects: whether integers with nulls become objects.
        undecoded: number of images that could not be decoded.
    """

    def __init__(self, kinds: Mapping[str, str], forms: Mapping[str, Form], threads: int = 1) -> None:
        self.kinds = kinds
        self.forms = forms
        self.threads = threads
        self.objects = False
        self.undecoded = 0
        self._counting = threading.Lock()
        #: The columns that forms add, each with the column that it belongs to.
        self.further = {further: name for name, form in forms.items() for further in further_names(name, form)}
        self._told: set[str] = set()
        self._transformed: Columns | None = None

    def of_transform(self) -> Columns:
        """The same for the batches of a transform, whose columns have no types of the files and no forms."""
        if self._transformed is None:
            self._transformed = Columns({}, {})
        return self._transformed

    def count_undecoded(self, images: int) -> None:
        """Counts images that could not be decoded. Several threads call it."""
        with self._counting:
            self.undecoded += images

    def tell_left_out(self, names: list[str]) -> None:
        """Warns once for each set of columns that are no tensors."""
        told = ", ".join(f"{name} ({self.kinds.get(name, 'objects')})" for name in names)
        if names and told not in self._told:
            self._told.add(told)
            warnings.warn(
                f"batches as tensors leave out the columns {told}: choose others by columns=, or a form by forms=",
                RuntimeWarning,
                stacklevel=4,
            )


class Batch(Mapping[str, "np.ndarray[Any, Any]"]):
    """Columns by name, as NumPy arrays over the memory of the batch, without a copy where its layout allows that.

    A column of numbers has the shape (rows). Fixed-size lists, lists of one length, and binary values of one size (as ``uint8``)
    have the shape (rows, length). Dates and times are ``datetime64`` and ``timedelta64``. Strings and values of varying size are
    an array of objects. A structure is a dictionary of its fields, which are also columns of their own: ``batch["place.x"]``.

    Null is NaN in floats and NaT in times. Other numbers with nulls need a :class:`Fill`.

    Other array libraries accept the batch through the Arrow C data interface, or its columns through DLPack:
    ``torch.from_dlpack`` or ``jax.dlpack.from_dlpack`` of a column makes no copy either.
    """

    def __init__(
        self,
        batch: _native.Batch,
        decoder: Decoder | None = None,
        common: Columns | None = None,
    ) -> None:
        self._batch = batch
        self._decoder = decoder
        self._common = common or Columns({}, {})
        #: Columns with a form, and those that forms have added.
        self._formed: dict[str, np.ndarray[Any, Any]] = {}
        #: In a :class:`Mixture`, the index of its data set.
        self.source = 0

    @property
    def rows(self) -> int:
        """Number of rows; 0 if this worker has none left in a step of the others."""
        return len(self._batch)

    def __getitem__(self, column: str) -> np.ndarray[Any, Any]:
        """A column in its form, decoded if the data set has codecs.

        Raises:
            KeyError: there is no such column.
            TypeError: NumPy does not support its type, it has nulls and no value for them, or this is no name.
            DataError: a value does not match its codec or its form.
        """
        if not isinstance(column, str):
            raise TypeError(
                f"batch[{column!r}]: a batch is indexed by the name of a column, such as batch[{self._batch.names()[0]!r}]"
            )
        if column in self._formed:
            return self._formed[column]
        owner = self._common.further.get(column, column)
        form = self._common.forms.get(owner)
        if form is not None:
            self._formed |= columns.formed(
                owner, self._parts(owner), form, self._common.threads, self._common.count_undecoded
            )
            return self._formed[column]
        if self._decoder is not None:
            return self._decoder(self, column)
        return self._plain(column)

    def decode(self) -> None:
        """Decodes the columns with a codec and the images, so that asking for them takes no time.

        Raises:
            DataError: a value does not match its codec or its form.
        """
        for name, form in self._common.forms.items():
            if isinstance(form, Image):
                self[name]
        if self._decoder is not None:
            self._formed |= {name: self._decoder(self, name) for name in self if name not in self._common.forms}

    def _plain(self, column: str) -> np.ndarray[Any, Any]:
        import numpy as np

        kind = self._common.kinds.get(column, "")
        memory = None if kind.startswith(_TIMES) else self._memory(column)
        if memory is not None:
            return np.asarray(memory)
        array: np.ndarray[Any, Any] = columns.plain(column, self._parts(column), self._common.objects)
        return array

    def _memory(self, column: str) -> _native.Column | None:
        return self._batch.column(column) if column in self._batch.names() else None

    def _parts(self, column: str) -> _native.Parts:
        """The memory of a column, or of a field of a structure."""
        names = self._batch.names()
        name, *fields = [column] if column in names else column.split(".")
        parts = self._batch.parts(name)
        for field in fields:
            parts = None if parts is None else dict(parts.fields()).get(field)
            if parts is None:
                raise KeyError(column)
        if parts is None:
            raise _NoArray(f"column {column!r} is no array of NumPy: take it from arrow()")
        return parts

    def mask(self, column: str) -> np.ndarray[Any, Any]:
        """Which rows have a value and no null: bool of shape (rows).

        Raises:
            KeyError: there is no such column.
        """
        return columns.mask_of(self._parts(column))

    def stored(self, column: str) -> np.ndarray[Any, Any]:
        """A column as it is stored, without decoding: times as integers, numbers with nulls as objects.

        Raises:
            KeyError: there is no such column.
            TypeError: NumPy does not support its type.
        """
        import numpy as np

        memory = self._batch.column(column)
        if memory is not None:
            return np.asarray(memory)
        values = self._batch.values(column)
        if values is None:
            raise _NoArray(f"column {column!r} is no array of NumPy: take it from arrow()")
        if self._common.kinds.get(column) == "Boolean" and None not in values:
            return np.array(values, dtype=bool)
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array

    def values_of(self, column: str) -> list[Any]:
        """The stored values of a column as a list; None for null.

        Raises:
            KeyError, TypeError: as for indexing.
        """
        values = self._batch.values(column)
        return list(self.stored(column)) if values is None else values

    def __iter__(self) -> Iterator[str]:
        yield from self._batch.names()
        yield from self._common.further

    def __len__(self) -> int:
        """Number of columns."""
        return len(self._batch.names()) + len(self._common.further)

    def torch(self) -> dict[str, torch.Tensor]:
        """All columns that can be tensors, over the same memory where its layout allows that.

        Dates and times are their number of units since 1970 or midnight, as int64. Decimals are float64. The fields of a
        structure are tensors of their own, such as ``place.x``. Strings and other objects are left out, and a
        ``RuntimeWarning`` names them once.

        Raises:
            TypeError: a column has nulls and no value for them.
            DataError: a value does not match its codec or its form.
        """
        tensors: dict[str, torch.Tensor] = {}
        left_out: list[str] = []
        for name in self:
            _add_tensors(self, name, tensors, left_out)
        self._common.tell_left_out(left_out)
        return tensors

    def _column(self, name: str) -> Any:
        """A column as a tensor may hold it."""
        is_stored = name not in self._common.further and self._decoder is None
        if not is_stored or "Decimal" not in self._common.kinds.get(name.partition(".")[0], ""):
            return self[name]
        if name in self._common.forms:
            return self[name].astype("float64")
        return columns.plain(name, self._parts(name), decimals=float)

    def arrow(self) -> pa.RecordBatch:
        """A pyarrow record batch over the same memory."""
        import pyarrow as pa

        return pa.record_batch(self._batch)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """The Arrow C data interface."""
        return self._batch.__arrow_c_array__(requested_schema)

    def origins(self) -> list[tuple[int, int]]:
        """For each row, the number of its row group in the data set and its index there, in file order."""
        return self._batch.origins()

    def __repr__(self) -> str:
        return f"<batch of {self.rows} rows: {', '.join(self)}>"


#: Arrow types whose memory is read as integers by :meth:`Batch.stored`.
_TIMES = ("Date", "Time", "Duration")


def _add_tensors(batch: Batch, name: str, tensors: dict[str, torch.Tensor], left_out: list[str]) -> None:
    """Adds a column, or the fields of a structure."""
    import torch

    if isinstance(batch._common.forms.get(name), Nest):
        values, offsets = map(_tensor, columns.packed(name, batch._parts(name)))
        tensors[name] = torch.nested.nested_tensor_from_jagged(values, offsets)
        return
    try:
        column: Any = batch._column(name)
    except _NoArray:
        left_out.append(name)
        return
    if isinstance(column, dict):
        for field in column:
            _add_tensors(batch, f"{name}.{field}", tensors, left_out)
    elif column.dtype.kind in "biufcMm":
        tensors[name] = _tensor(column)
    else:
        left_out.append(name)


def tensors_of(columns: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Columns as tensors, those of structures as ``place.x``, and the names of columns that cannot be tensors."""
    import numpy as np
    import torch

    tensors: dict[str, torch.Tensor] = {}
    left_out: list[str] = []
    for name, column in columns.items():
        if isinstance(column, Mapping):
            further, more = tensors_of({f"{name}.{field}": values for field, values in column.items()})
            tensors |= further
            left_out += more
        elif isinstance(column, torch.Tensor):
            tensors[name] = column
        elif isinstance(column, np.ndarray) and column.dtype.kind in "biufcMm":
            tensors[name] = _tensor(column)
        else:
            left_out.append(name)
    return tensors, left_out


def _tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """The same memory. torch has no times: they are integers."""
    import torch

    return torch.from_numpy(array.view("int64") if array.dtype.kind in "Mm" else array)
