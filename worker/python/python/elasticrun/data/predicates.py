"""Petastorm's predicates. Those that reveal their comparison become conditions. All others are evaluated row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .batch import Batch
from .fields import name_of
from .transform import TransformedBatch

if TYPE_CHECKING:
    import numpy as np

__all__ = ["conditions", "kept"]


def conditions(predicate: Any) -> list[tuple[str, str, Any]] | None:
    """The conditions of ``where`` that are equivalent to a predicate; None if there are none.

    Supports ``in_set`` over plain values, and ``all`` of several. Petastorm's classes are recognized by their names and attributes,
    so Petastorm need not be installed.
    """
    kind = type(predicate).__name__
    if kind == "in_set":
        values = list(getattr(predicate, "_inclusion_values", ()))
        if all(isinstance(value, (bool, int, float, str, bytes)) for value in values):
            return [(name_of(predicate._predicate_field), "in", values)]
    if kind == "in_reduce" and getattr(predicate, "_reduce_func", None) is all:
        parts = [conditions(part) for part in predicate._predicate_list]
        if all(part is not None for part in parts):
            return [condition for part in parts for condition in part or ()]
    return None


def kept(predicate: Any, batch: Batch) -> Batch:
    """The rows of a batch for which ``predicate.do_include`` is true."""
    import numpy as np

    names = [name_of(field) for field in predicate.get_fields()]
    columns = {name: batch[name] for name in names}
    rows = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    keep = np.fromiter((bool(predicate.do_include(row)) for row in rows), dtype=bool, count=batch.rows)
    chosen: Mapping[str, np.ndarray[Any, Any]] = {name: batch[name][keep] for name in batch}
    return TransformedBatch(batch, chosen)
