"""The shape of the mesh of a round, and which of its workers read the same rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from elasticrun._coordinates import DataCoordinates
from elasticrun.errors import StateError


def mesh_shape(dimensions: Sequence[str] | Mapping[str, int | None], size: int) -> tuple[list[int], list[str]]:
    """Lengths and names of the dimensions of a mesh of ``size`` workers.

    Args:
        dimensions: their names, or their lengths by name. The one without a length has the rest of the workers.
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
    if len(free) > 1:
        raise StateError(
            f"mesh={dimensions!r}: one dimension has the rest of the workers, so give the others their sizes, such as"
            f" {{{free[0]!r}: None, {free[1]!r}: 4}}"
        )
    if size % product or (not free and size != product):
        works = f"any multiple of {product}" if free else f"only {product}"
        raise StateError(
            f"a mesh of {shown(lengths)} cannot have {size} workers: {works} works; set -np, --min-np and --max-np so"
        )
    rest = size // product
    return [rest if length is None else length for length in lengths.values()], list(lengths)


def next_shard(dimensions: Sequence[str] | Mapping[str, int | None], size: int, shards: int, nbytes: int) -> int:
    """Bytes of a shard in the largest mesh of fewer workers. ``nbytes`` if there is none, or its shards are the same.

    Args:
        dimensions: as for :func:`mesh_shape`.
        size: number of workers now.
        shards: number of different shards now.
        nbytes: bytes of a shard now.
    """
    lengths = dimensions.values() if isinstance(dimensions, Mapping) else ()
    # So many workers are added and removed at once. If their dimension has copies of the model, there are at most as many shards.
    step = math.prod(length for length in lengths if length is not None)
    return nbytes * size // (size - step) if shards > step and size > step else nbytes


def ranks_by_seat(order: Sequence[tuple[int, int]], size: int) -> list[int]:
    """The ranks in the order of replica groups and shards: the rank at each position of a mesh.

    Args:
        order: runs of ranks, each the first one and their number. None are the order of ranks.
        size: number of workers.

    Raises:
        StateError: the runs do not have each rank once.
    """
    ranks = [rank for first, count in order for rank in range(first, first + min(count, size))] or [*range(size)]
    if sorted(ranks) != [*range(size)]:
        raise StateError(
            f"the driver has named ranks {order} of {size} workers: run driver and workers of the same release"
        )
    return ranks


def data_coordinates(mesh: DeviceMesh, data: Sequence[str]) -> DataCoordinates:
    """The data coordinates of a mesh over all ranks, whose workers read different rows along these dimensions."""
    names = mesh.mesh_dim_names or ()
    ranks: Any = mesh.mesh
    order = [names.index(name) for name in names if name in data] + [
        names.index(name) for name in names if name not in data
    ]
    count = math.prod(ranks.shape[names.index(name)] for name in data)
    table = ranks.permute(order).reshape(count, -1)
    return DataCoordinates(dist.get_rank(), [sorted(members) for members in table.tolist()])


def shown(dimensions: Sequence[str] | Mapping[str, int | None]) -> str:
    """Names and lengths of the dimensions of a mesh, for a message."""
    lengths = dict(dimensions) if isinstance(dimensions, Mapping) else dict.fromkeys(dimensions)
    return " x ".join(f"{name} {length or '(any)'}" for name, length in lengths.items())
