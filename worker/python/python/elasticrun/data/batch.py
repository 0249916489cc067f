"""Batches: the rows of a step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import _native

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import torch

    #: Decodes a stored column of a batch.
    Decoder: TypeAlias = Callable[["Batch", str], np.ndarray[Any, Any]]

__all__ = ["Batch"]


class _NoArray(TypeError):
    """A column has a type that NumPy lacks."""


class Batch(Mapping[str, "np.ndarray[Any, Any]"]):
    """Columns by name, as NumPy arrays over the memory of the batch, without a copy.

    A column of numbers has the shape (rows). Fixed-size lists, lists of one length, and binary values of one size (as ``uint8``)
    have the shape (rows, length). Booleans are ``bool``. Strings and values of varying size are an array of objects. Use
    :meth:`arrow` for all other types.

    Other array libraries accept the batch through the Arrow C data interface, or its columns through DLPack:
    ``torch.from_dlpack`` or ``jax.dlpack.from_dlpack`` of a column makes no copy either.
    """

    def __init__(
        self, batch: _native.Batch, decoder: Decoder | None = None, kinds: Mapping[str, str] | None = None
    ) -> None:
        self._batch = batch
        self._decoder = decoder
        #: The Arrow types of the columns, by name.
        self._kinds = kinds or {}
        #: In a :class:`Mixture`, the index of its data set.
        self.source = 0

    @property
    def rows(self) -> int:
        """Number of rows; 0 if this worker has none left in a step of the others."""
        return len(self._batch)

    def __getitem__(self, column: str) -> np.ndarray[Any, Any]:
        """A column, decoded if the data set has codecs.

        Raises:
            KeyError: there is no such column.
            TypeError: NumPy does not support its type; use :meth:`arrow`.
            DataError: a value does not match its codec.
        """
        return self.stored(column) if self._decoder is None else self._decoder(self, column)

    def stored(self, column: str) -> np.ndarray[Any, Any]:
        """A column as it is stored, without decoding. Raises as indexing does."""
        import numpy as np

        memory = self._batch.column(column)
        if memory is not None:
            return np.asarray(memory)
        values = self._batch.values(column)
        if values is None:
            raise _NoArray(f"column {column!r} is no array of NumPy: take it from arrow()")
        if self._kinds.get(column) == "Boolean" and None not in values:
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
        return iter(self._batch.names())

    def __len__(self) -> int:
        """Number of columns."""
        return len(self._batch.names())

    def torch(self) -> dict[str, torch.Tensor]:
        """All columns of numbers as tensors over the same memory. Other columns are left out."""
        import torch

        arrays = {}
        for name in self:
            with contextlib.suppress(_NoArray):
                arrays[name] = self[name]
        return {name: torch.from_numpy(array) for name, array in arrays.items() if array.dtype.kind in "biufc"}

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
