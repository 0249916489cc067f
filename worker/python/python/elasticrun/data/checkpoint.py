"""Positions of data sets in checkpoints that the user writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

__all__ = ["VERSION", "entry"]

#: The version of the dictionaries. Their positions have a version of their own.
VERSION = 1

Value = TypeVar("Value")


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
