"""The output of a Petastorm-like reader: its fields and their form."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import predicates
from .batch import Batch
from .expressions import is_expression
from .fields import matching, name_of
from .ngram import NGram

if TYPE_CHECKING:
    from .petastorm import Field

__all__ = ["OutputSchema"]


class OutputSchema:
    """Converts batches to named tuples of arrays, or to rows as named tuples of values, with an optional transform.

    Attributes:
        batched: whether tuples hold arrays.
        stored: the Petastorm schema whose codecs are decoded, if any.
        columns: the columns to read; all if None.
        ngram: windows in place of rows.
        predicate: evaluated for each row; None if conditions replace it.
    """

    def __init__(self, batched: bool, stored: Sequence[Field] | None, spec: Any) -> None:
        self.batched = batched
        self.stored = stored
        self.columns: list[str] | None = None
        self.ngram: NGram | None = None
        self.predicate: Any = None
        self._spec = spec
        self._known: list[str] = []
        self._fields: list[str] = []
        self._tuple: Any = None

    def choose(self, given: Any, known: Sequence[str], predicate: Any) -> None:
        """Selects fields of the data set.

        Raises:
            ValueError: a field does not exist, or arguments cannot be combined.
        """
        in_files = set(known)
        self._known = list(known) if self.stored is None else [f.name for f in self.stored if f.name in in_files]
        if isinstance(given, NGram) or type(given).__name__ == "NGram":
            if predicate is not None or self._spec is not None:
                raise ValueError("an NGram cannot be together with predicate or transform_spec")
            self.ngram = given if isinstance(given, NGram) else _of_petastorm(given)
            return
        self._fields = self._known if given is None else matching(given, self._known)
        needed = [] if predicate is None else [name_of(field) for field in predicate.get_fields()]
        self.columns = self._fields + [name for name in matching(needed, self._known) if name not in self._fields]
        after = self._fields if self._spec is None else _names(self._spec, self._fields)
        self._tuple = namedtuple("Row", after)  # type: ignore[misc]

    def conditions(self, predicate: Any, filters: Any) -> tuple[Any, Any]:
        """The argument ``where``, and the predicate if conditions cannot replace it.

        Raises:
            ValueError: conditions cannot be combined.
        """
        if predicate is None:
            return filters, None
        scalars = {f.name for f in self.stored or () if f.codec is None or f.codec.name == "ScalarCodec"}
        pushed = predicates.conditions(predicate)
        if pushed is not None and self.stored is not None and not all(name in scalars for name, _, _ in pushed):
            pushed = None
        if pushed is None:
            return filters, predicate
        if is_expression(filters):
            return [filters, *pushed], None
        if not filters:
            return pushed, None
        if isinstance(filters[0], list):
            return [alternative + pushed for alternative in filters], None
        return list(filters) + pushed, None

    def rows(self, batch: Batch) -> Iterator[Any]:
        """What a batch gives."""
        if not batch.rows:
            return
        if self.ngram is not None:
            yield from self._windows(batch)
            return
        if self.predicate is not None:
            batch = predicates.kept(self.predicate, batch)
            if not batch.rows:
                return
        columns: Mapping[str, Any] = {name: batch[name] for name in self._fields}
        if self.batched:
            yield self._tuple(**self._frame(columns))
            return
        names = list(columns)
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(names, values, strict=True))
            yield self._tuple(**self._chosen(row))

    def _windows(self, batch: Batch) -> Iterator[Any]:
        assert self.ngram is not None
        if not self.batched:
            yield from self.ngram.rows(batch, self._known)
            return
        parts = self.ngram.split(batch, self._known)
        yield {key: namedtuple("Row", list(columns))(**columns) for key, columns in parts.items()}

    def _chosen(self, row: dict[str, Any]) -> dict[str, Any]:
        if self._spec is None:
            return row
        given = row if self._spec.func is None else self._spec.func(row)
        return {name: _there(given, name) for name in self._tuple._fields}

    def _frame(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Like :meth:`_chosen` for a batch: the function gets a pandas data frame, as in Petastorm."""
        if self._spec is None:
            return dict(columns)
        if self._spec.func is None:
            return {name: columns[name] for name in self._tuple._fields}
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "transform_spec of make_batch_reader works on data frames: install pandas, or use ParquetDataset(transform=...)"
            ) from error
        frame = pd.DataFrame({name: list(column) if column.ndim > 1 else column for name, column in columns.items()})
        given = self._spec.func(frame)
        return {name: _values(_there(given, name)) for name in self._tuple._fields}


def _there(given: Any, name: str) -> Any:
    if name not in given:
        raise ValueError(f"transform_spec: what func gives has no field {name!r}")
    return given[name]


def _values(series: Any) -> Any:
    """A column of a data frame. Arrays of one shape are stacked."""
    import numpy as np

    values = series.to_numpy()
    shapes = {value.shape for value in values if isinstance(value, np.ndarray)}
    alike = values.dtype == object and len(shapes) == 1 and all(isinstance(value, np.ndarray) for value in values)
    return np.stack(list(values)) if alike else values


def _names(spec: Any, before: Sequence[str]) -> list[str]:
    """The fields after a transform: our class, or Petastorm's with the same attributes."""
    from .transform import TransformSpec

    if not isinstance(spec, TransformSpec):
        if not hasattr(spec, "edit_fields"):
            raise ValueError(f"transform_spec={spec!r}: must be a TransformSpec, which holds the function")
        removed = spec.removed_fields or None
        spec = TransformSpec(spec.func, spec.edit_fields, removed, spec.selected_fields)
    names: list[str] = spec.names(before)
    return names


def _of_petastorm(given: Any) -> NGram:
    """Converts Petastorm's NGram."""
    return NGram(given.fields, given.delta_threshold, given._timestamp_field, given.timestamp_overlap)
