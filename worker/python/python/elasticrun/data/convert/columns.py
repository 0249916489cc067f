"""Types of columns that the user names."""

from __future__ import annotations

from typing import Any, TypeAlias

#: A type of pyarrow.
Column: TypeAlias = Any


def parsed_column(text: str) -> tuple[str, Column]:
    """A name and a type of pyarrow, of text such as ``label:int64``.

    Raises:
        ValueError: it is none.
    """
    import pyarrow as pa

    name, colon, kind = text.rpartition(":")
    try:
        found = pa.type_for_alias(kind)
    except ValueError:
        found = None
    if not (name and colon) or found is None:
        raise ValueError(f"{text!r}: expected NAME:TYPE with a type such as int64, float32, string, binary or bool")
    return name, found
