"""User functions that transform rows before they are returned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from .batch import Batch, tensors_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import torch

__all__ = ["TransformSpec", "TransformedBatch", "edit_field"]

Columns = Mapping[str, "np.ndarray[Any, Any]"]


@dataclass
class TransformSpec:
    """A transform of rows, with the arguments of Petastorm's class.

    Args:
        func: a function of a row as a dictionary (``make_reader``) or of a pandas data frame (``make_batch_reader``), which
            returns the changed one.
        edit_fields: new fields and fields with a new type, each as (name, NumPy type, shape, nullable).
        removed_fields: names of fields to remove.
        selected_fields: names of the fields to keep, in this order. Cannot be combined with ``removed_fields``.

    Raises:
        ValueError: both are given.
    """

    func: Callable[[Any], Any] | None = None
    edit_fields: Sequence[tuple[Any, ...]] | None = None
    removed_fields: Sequence[str] | None = None
    selected_fields: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.removed_fields is not None and self.selected_fields is not None:
            raise ValueError("removed_fields and selected_fields: only one of them can be given")

    def names(self, before: Sequence[str]) -> list[str]:
        """The fields after the transform, with edited ones at the end as in Petastorm."""
        edited = [str(edit[0]) for edit in self.edit_fields or ()]
        gone = {*edited, *(self.removed_fields or ())}
        after = [name for name in before if name not in gone] + edited
        if self.selected_fields is None:
            return after
        return [name for name in self.selected_fields if name in after]


def edit_field(name: str, numpy_dtype: Any, shape: tuple[int | None, ...], nullable: bool = False) -> tuple[Any, ...]:
    """A field for ``edit_fields`` of :class:`TransformSpec`."""
    return name, numpy_dtype, shape, nullable


class TransformedBatch(Batch):
    """A batch with the columns of a user function, which may change the number of rows. ``origins`` and the count of processed rows
    are those of the input."""

    def __init__(self, batch: Batch, columns: Columns) -> None:
        super().__init__(batch._batch, common=batch._common.of_transform())
        lengths = {name: _rows(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            summary = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise ValueError(f"transform gave columns of different lengths: {summary}")
        self._columns = dict(columns)
        self._rows = next(iter(lengths.values()), 0)

    @property
    def rows(self) -> int:
        """Number of rows that the function returned."""
        return self._rows

    def __getitem__(self, column: str) -> np.ndarray[Any, Any]:
        if column in self._columns:
            return self._columns[column]
        found: Any = self._columns
        for field in column.split("."):
            if not isinstance(found, Mapping):
                raise KeyError(column)
            found = found[field]
        return cast("np.ndarray[Any, Any]", found)

    def mask(self, column: str) -> np.ndarray[Any, Any]:
        """Raises TypeError: only the function knows which of its values count."""
        raise TypeError("mask() is of stored columns, and transform has made these: return the mask as a column")

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def torch(self) -> dict[str, torch.Tensor]:
        """All columns that can be tensors, as :meth:`Batch.torch`."""
        tensors, left_out = tensors_of(self._columns)
        self._common.tell_left_out(left_out)
        return tensors

    def arrow(self) -> pa.RecordBatch:
        """A pyarrow record batch of the columns; columns of more than one dimension as lists."""
        import pyarrow as pa

        arrays = {name: _arrow(column) for name, column in self._columns.items()}
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        given: tuple[object, object] = self.arrow().__arrow_c_array__(requested_schema)
        return given


def _rows(column: Any) -> int:
    """Rows of a column, or of the fields of a structure."""
    return len(column) if not isinstance(column, Mapping) else max(map(_rows, column.values()), default=0)


def _arrow(column: np.ndarray[Any, Any]) -> Any:
    import pyarrow as pa

    if column.ndim <= 1:
        return pa.array(column)
    array = pa.array(column.reshape(-1))
    for size in reversed(column.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array
