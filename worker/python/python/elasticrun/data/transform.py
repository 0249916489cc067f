"""A function of the user between the rows that are read and those that a step gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .batch import Batch

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = ["TransformSpec", "TransformedBatch", "edit_field"]

Columns = Mapping[str, "np.ndarray[Any, Any]"]


@dataclass
class TransformSpec:
    """What a reader does to rows, as Petastorm says it: its arguments and their meaning.

    Args:
        func: gets a row as a dictionary (``make_reader``), or a pandas data frame (``make_batch_reader``), and gives it back
            changed.
        edit_fields: fields that are new or have another type, each as (name, type of NumPy, shape, nullable).
        removed_fields: names of fields that are not there afterwards.
        selected_fields: names of those that are, in this order; not together with ``removed_fields``.

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
        """The fields afterwards, of those before: edited ones at the end, as Petastorm orders them."""
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
    """A batch whose columns a function of the user made. There are as many rows as it gave; ``origins`` are those of the rows
    that went in, and what counts as processed are these."""

    def __init__(self, batch: Batch, columns: Columns) -> None:
        super().__init__(batch._batch)
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise ValueError(f"transform gave columns of different lengths: {said}")
        self._columns = dict(columns)
        self._rows = next(iter(lengths.values()), 0)

    @property
    def rows(self) -> int:
        """Rows that the function gave."""
        return self._rows

    def __getitem__(self, column: str) -> np.ndarray[Any, Any]:
        return self._columns[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def arrow(self) -> pa.RecordBatch:
        """The columns as pyarrow's record batch; those of more than one dimension as lists."""
        import pyarrow as pa

        arrays = {name: _arrow(column) for name, column in self._columns.items()}
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        given: tuple[object, object] = self.arrow().__arrow_c_array__(requested_schema)
        return given


def _arrow(column: np.ndarray[Any, Any]) -> Any:
    import pyarrow as pa

    if column.ndim <= 1:
        return pa.array(column)
    array = pa.array(column.reshape(-1))
    for size in reversed(column.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array
