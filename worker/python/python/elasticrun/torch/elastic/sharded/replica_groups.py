"""Whether replica groups are the workers that hold one whole model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from elasticrun import _native
from elasticrun.errors import StateError

from .mesh_shape import shown


def check_group(dimensions: Sequence[str] | Mapping[str, int | None], shards: int, shard: int) -> None:
    """Checks that each replica group of the round has each shard once, and that this worker has that of its seat.

    Args:
        dimensions: those of the mesh.
        shards: number of different shards.
        shard: the shard of this worker.

    Raises:
        StateError: ``--replica-group-size`` is another number, or the mesh puts copies of the model in another order.
    """
    world = _native.world()
    if world.replica_group_size is None:
        return
    lengths = dimensions.values() if isinstance(dimensions, Mapping) else ()
    # A dimension without a size that divides the model has more workers when the round has more.
    is_fixed = shards < world.size or shards == math.prod(length for length in lengths if length is not None)
    if shards != world.replica_group_size or not is_fixed:
        works = str(shards) if is_fixed and shards > 1 else "all"
        raise StateError(
            f"--replica-group-size {world.replica_group_size}: {shards} workers hold one whole model in a mesh of"
            f" {shown(dimensions)}; set --replica-group-size {works}"
        )
    if shard != world.shard:
        raise StateError(
            f"mesh={dimensions!r}: with --replica-group-size {world.replica_group_size}, the dimensions along which workers have"
            " copies of the model come first, such as {'replicate': None, 'shard': 4}"
        )


def refuse_groups(why: str) -> None:
    """Refuses replica groups of a fixed size.

    Raises:
        StateError: the job has them.
    """
    size = _native.world().replica_group_size
    if size is not None:
        raise StateError(f"--replica-group-size {size}: {why}; set --replica-group-size all")
