"""Selects the row groups of a data set.

``ParquetDataset(row_groups=...)`` accepts numbers of row groups, conditions on their statistics, a function of a :class:`RowGroup`,
or a selector over an index that Petastorm built. The data set and its epochs consist of the selected row groups, which are
renumbered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ..errors import DataError
from .expressions import is_expression
from .petastorm import Index, read_indexes

__all__ = ["IntersectIndexSelector", "RowGroup", "SingleIndexSelector", "UnionIndexSelector"]


@dataclass(frozen=True)
class RowGroup:
    """A row group of a data set."""

    #: Its number in the data set, with files sorted by name.
    number: int
    #: Path or address of its file, and its index there.
    file: str
    index: int
    rows: int
    #: Uncompressed bytes of all columns.
    bytes: int


@runtime_checkable
class Selector(Protocol):
    """Selects row groups by indexes. Petastorm's selectors have this interface."""

    def get_index_names(self) -> list[str]:
        """The indexes that it needs."""

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """The numbers of the row groups, in Petastorm's order."""


class SingleIndexSelector:
    """Row groups that hold one of these values, by an index of one field. An index that only records the presence of values selects
    all row groups with a value."""

    def __init__(self, index_name: str, values_list: Sequence[Any]) -> None:
        self._index_name = index_name
        self._values = list(values_list)

    def get_index_names(self) -> list[str]:
        """The index."""
        return [self._index_name]

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """See the class."""
        index = index_dict[self._index_name]
        return set().union(*(index.get_row_group_indexes(value) for value in self._values))


class _Several:
    def __init__(self, single_index_selectors: Sequence[Selector]) -> None:
        if not single_index_selectors:
            raise ValueError(f"{type(self).__name__}: at least one selector is needed")
        self._selectors = list(single_index_selectors)

    def get_index_names(self) -> list[str]:
        """The indexes of all selectors."""
        return [name for selector in self._selectors for name in selector.get_index_names()]


class IntersectIndexSelector(_Several):
    """Row groups that all selectors select."""

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """See the class."""
        return set.intersection(*(set(selector.select_row_groups(index_dict)) for selector in self._selectors))


class UnionIndexSelector(_Several):
    """Row groups that at least one selector selects."""

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """See the class."""
        return set().union(*(selector.select_row_groups(index_dict) for selector in self._selectors))


class _Lookup:
    """An index with the interface that selectors use."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:
        if self._index.values is None:
            return set(self._index.groups)
        return set(self._index.values.get(value_key, ()))


def chosen(given: Any, paths: Sequence[str], storage_options: Mapping[str, str] | None = None) -> Any:
    """Converts the argument ``row_groups`` for the native module: None, conditions, or a function from all row groups to numbers.

    Raises:
        TypeError: the argument has another type.
        DataError: the index of a selector does not exist.
    """
    if is_expression(given):
        return [given]
    if given is None or (
        isinstance(given, list) and given and (isinstance(given[0], (tuple, list)) or is_expression(given[0]))
    ):
        return given
    if isinstance(given, Selector):
        wanted = _selected(given, paths, storage_options)
        return lambda groups: _numbers(wanted, groups)
    if callable(given):
        return lambda groups: {group[0] for group in groups if given(RowGroup(*group))}
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        numbers = set(given)
        return lambda groups: _numbers(numbers, groups)
    raise TypeError(
        f"row_groups={given!r}: must be numbers of row groups, conditions as of where, a function of a RowGroup, or a selector"
    )


def _numbers(wanted: set[int], groups: Sequence[tuple[Any, ...]]) -> set[int]:
    missing = sorted(number for number in wanted if not 0 <= number < len(groups))
    if missing:
        raise ValueError(f"row_groups: there is no row group {missing[0]}; the data set has {len(groups)}")
    return wanted


def _selected(selector: Selector, paths: Sequence[str], storage_options: Mapping[str, str] | None) -> set[int]:
    indexes = read_indexes(paths, storage_options)
    for name in selector.get_index_names():
        if name not in indexes:
            known = ", ".join(sorted(indexes)) or "none"
            raise DataError(
                f"{paths[0]}: no index {name!r}, which Petastorm's build_rowgroup_index makes; there are: {known}. Conditions need"
                " no index: row_groups=[(column, '==', value)]"
            )
    lookups = {name: _Lookup(index) for name, index in indexes.items()}
    return {int(number) for number in selector.select_row_groups(lookups)}
