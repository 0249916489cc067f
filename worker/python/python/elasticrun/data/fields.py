"""Fields in the forms of Petastorm: names, patterns, or fields of its schema."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

__all__ = ["matching", "name_of"]


def name_of(given: Any) -> str:
    """The name of a field.

    Raises:
        ValueError: ``given`` is not a field.
    """
    name = given if isinstance(given, str) else getattr(given, "name", None)
    if not isinstance(name, str):
        raise ValueError(f"{given!r} is no field: a name, a pattern, or a field of a schema is one")
    return name


def matching(given: Sequence[Any], known: Sequence[str]) -> list[str]:
    """The known fields that match one of the names or patterns completely, each once, in the order of ``given``.

    Raises:
        ValueError: a name or pattern matches no field.
    """
    names: list[str] = []
    for one in map(name_of, given):
        found = [one] if one in known else [name for name in known if re.fullmatch(one, name)]
        if not found:
            raise ValueError(f"no field matches {one!r}; there are: {', '.join(known)}")
        names += [name for name in found if name not in names]
    return names
