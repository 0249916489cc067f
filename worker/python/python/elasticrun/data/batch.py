"""The rows of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import _native

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import torch

    #: Gives a column of a batch from what is stored.
    Decoder: TypeAlias = Callable[["Batch", str], np.ndarray[Any, Any]]

__all__ = ["Batch"]


class Batch(Mapping[str, "np.ndarray[Any, Any]"]):
    """Columns by name, as NumPy arrays over the memory of the batch: nothing is copied.

    A column of numbers has the shape (rows); one of lists that all have the same length, of fixed-size lists, or of
    binary values of one size (as ``uint8``) has (rows, length). Truth values are ``bool``; strings and values of varying size
    are an array of objects. All else is there by :meth:`arrow`.

    Other libraries of arrays take the batch by the Arrow C data interface, or its columns by DLPack: ``torch.from_dlpack``
    or ``jax.dlpack.from_dlpack`` of a column copies nothing either.
    """

    def __init__(self, batch: _native.Batch, decoder: Decoder | None = None) -> None:
        self._batch = batch
        self._decoder = decoder
        #: Of a :class:`Mixture`: the number of the data set that it is from.
        self.source = 0

    @property
    def rows(self) -> int:
        """Rows in it; 0 where this worker has none left in a step that others still have."""
        return len(self._batch)

    def __getitem__(self, column: str) -> np.ndarray[Any, Any]:
        """A column; of a data set with codecs, decoded.

        Raises:
            KeyError: there is no such column.
            TypeError: it is nothing that NumPy knows; :meth:`arrow` has it.
            DataError: a value is not what its codec writes.
        """
        return self.stored(column) if self._decoder is None else self._decoder(self, column)

    def stored(self, column: str) -> np.ndarray[Any, Any]:
        """A column as it is stored, without a codec. Raises as indexing does."""
        import numpy as np

        memory = self._batch.column(column)
        if memory is not None:
            return np.asarray(memory)
        values = self._batch.values(column)
        if values is None:
            raise TypeError(f"column {column!r} is no array of NumPy: take it from arrow()")
        if values and all(isinstance(value, bool) for value in values):
            return np.array(values, dtype=bool)
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array

    def values_of(self, column: str) -> list[Any]:
        """The values of a column as it is stored, one by one; None where there is none.

        Raises:
            KeyError, TypeError: as indexing.
        """
        values = self._batch.values(column)
        return list(self.stored(column)) if values is None else values

    def __iter__(self) -> Iterator[str]:
        return iter(self._batch.names())

    def __len__(self) -> int:
        """Number of columns."""
        return len(self._batch.names())

    def torch(self) -> dict[str, torch.Tensor]:
        """All columns of numbers as tensors over the same memory; others are left out."""
        import torch

        arrays = {name: self[name] for name in self}
        return {name: torch.from_numpy(array) for name, array in arrays.items() if array.dtype != object}

    def arrow(self) -> pa.RecordBatch:
        """The batch as pyarrow's record batch, over the same memory."""
        import pyarrow as pa

        return pa.record_batch(self._batch)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """The Arrow C data interface, for any library that takes it."""
        return self._batch.__arrow_c_array__(requested_schema)

    def origins(self) -> list[tuple[int, int]]:
        """Where each row is from: the number of its row group in the data set, and its row there, in the order of the file."""
        return self._batch.origins()

    def __repr__(self) -> str:
        return f"<batch of {self.rows} rows: {', '.join(self)}>"
