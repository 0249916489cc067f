"""Positions of data sets in checkpoints that the user writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import StateError

if TYPE_CHECKING:
    from .dataset import ParquetDataset

__all__ = ["VERSION", "entry", "saved"]

#: The version of the dictionaries. Their positions have a version of their own.
VERSION = 1

Value = TypeVar("Value")


def saved(data: ParquetDataset) -> bytes:
    """The position of a data set as of the last commit.

    Raises:
        StateError: rows were processed since then.
    """
    if data._data.is_ahead():
        raise StateError(
            "the data set has processed rows since the last commit: call commit() first, then state_dict()"
        )
    return data._save()


def entry(state: Mapping[str, Any], key: str, kind: type[Value]) -> Value:
    """An entry of the output of ``state_dict()``.

    Raises:
        ValueError: it is not there, or the dictionary is of another version.
    """
    version = state.get("version") if isinstance(state, Mapping) else None
    if version != VERSION:
        raise ValueError(
            f"load_state_dict: the version is {version!r} and must be {VERSION}: pass what state_dict() returned"
        )
    value = state.get(key)
    if not isinstance(value, kind):
        raise ValueError(f"load_state_dict: {key!r} must be {kind.__name__}: pass what state_dict() returned")
    return value
