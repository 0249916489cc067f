"""The shape of the mesh of a round, which follows from its number of workers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from elasticrun.errors import StateError


def mesh_shape(dimensions: Sequence[str] | Mapping[str, int | None], size: int) -> tuple[list[int], list[str]]:
    """Lengths and names of the dimensions of a mesh of ``size`` workers.

    Args:
        dimensions: their names, or their lengths by name. The first one without a length has the rest of the workers.
        size: number of workers.

    Raises:
        StateError: no such mesh has ``size`` workers. The message has the sizes that work.
    """
    lengths = dict(dimensions) if isinstance(dimensions, Mapping) else dict.fromkeys(dimensions)
    if not lengths or len(lengths) != len(dimensions):
        raise StateError(f"mesh={dimensions!r}: expected at least one name, each once")
    fixed = {name: length for name, length in lengths.items() if length is not None}
    for name, length in fixed.items():
        if length < 1:
            raise StateError(f"mesh={dimensions!r}: dimension {name!r} must have at least 1 worker")
    product = math.prod(fixed.values())
    free = [name for name in lengths if name not in fixed]
    if size % product or (not free and size != product):
        works = f"any multiple of {product}" if free else f"only {product}"
        raise StateError(
            f"a mesh of {_shown(lengths)} cannot have {size} workers: {works} works; set -np, --min-np and --max-np so"
        )
    rest = size // product
    return [_length(lengths[name], rest if name == free[0] else 1) for name in lengths] if free else list(
        fixed.values()
    ), list(lengths)


def _length(length: int | None, rest: int) -> int:
    return rest if length is None else length


def _shown(lengths: Mapping[str, int | None]) -> str:
    return " x ".join(f"{name} {length or '(any)'}" for name, length in lengths.items())
