"""Windows of consecutive rows, like Petastorm's NGram."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .batch import Batch
from .fields import matching, name_of

__all__ = ["NGram"]


class NGram:
    """The fields of each row of a window. A window is within one row group, and its rows are sorted by time.

        NGram({-1: ["speed"], 0: ["speed", "label"]}, delta_threshold=100, timestamp_field="time")

    Args:
        fields: for each row of the window, names or patterns of its fields. Patterns must match whole names. The first row may have
            any number. Rows without an entry are in the window but have no fields.
        delta_threshold: maximum difference between the timestamps of adjacent rows, in the unit of the field.
        timestamp_field: a field of numbers, dates or times.
        timestamp_overlap: whether windows may share rows. If not, each row is in at most one window.

    Raises:
        ValueError: an argument is invalid.
    """

    def __init__(
        self,
        fields: Mapping[int, Sequence[Any]],
        delta_threshold: float,
        timestamp_field: Any,
        timestamp_overlap: bool = True,
    ) -> None:
        if not isinstance(fields, Mapping) or not fields or not all(isinstance(key, int) for key in fields):
            raise ValueError(f"NGram(fields={fields!r}): must give a list of fields for each row, by whole numbers")
        for key, several in fields.items():
            if isinstance(several, str) or not isinstance(several, Sequence):
                raise ValueError(f"NGram(fields): row {key} has {several!r}, which is no list of fields")
        if isinstance(delta_threshold, bool) or not isinstance(delta_threshold, (int, float)):
            raise ValueError(f"NGram(delta_threshold={delta_threshold!r}): must be a number")
        if not isinstance(timestamp_overlap, bool):
            raise ValueError(f"NGram(timestamp_overlap={timestamp_overlap!r}): must be True or False")
        self.fields = {key: list(several) for key, several in fields.items()}
        self.delta_threshold = delta_threshold
        self.timestamp_field = name_of(timestamp_field)
        self.timestamp_overlap = timestamp_overlap

    @property
    def length(self) -> int:
        """Rows of a window."""
        return max(self.fields) - min(self.fields) + 1

    def names(self, known: Sequence[str]) -> dict[int, list[str]]:
        """The fields of each row that the data set has.

        Raises:
            ValueError: a name matches no field.
        """
        return {key: matching(several, known) for key, several in sorted(self.fields.items())}

    def windows(self, known: Sequence[str]) -> tuple[int, str, float, bool, list[tuple[int, str]]]:
        """The arguments of the native module."""
        first = min(self.fields)
        (time,) = matching([self.timestamp_field], known)[:1]
        columns = [(key - first, name) for key, names in self.names(known).items() for name in names]
        return self.length, time, float(self.delta_threshold), self.timestamp_overlap, columns

    def split(self, columns: Mapping[str, Any], known: Sequence[str]) -> dict[int, dict[str, Any]]:
        """The columns of a batch of windows (``"0/name"``), by row and name."""
        first = min(self.fields)
        return {
            key: {name: columns[f"{key - first}/{name}"] for name in names} for key, names in self.names(known).items()
        }

    def rows(self, batch: Batch, known: Sequence[str]) -> Iterator[dict[int, Any]]:
        """The windows of a batch: one named tuple for each row of a window."""
        parts = self.split(batch, known)
        kinds = {key: namedtuple("Row", list(columns)) for key, columns in parts.items()}
        for index in range(batch.rows):
            yield {key: kinds[key](*(column[index] for column in columns.values())) for key, columns in parts.items()}
