"""Meshes that outlive their rounds."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from elasticrun import _native
from elasticrun.errors import StateError

from ... import dtensor_caches


@dataclass(frozen=True)
class _Key:
    """What makes two meshes equal."""

    device_type: str
    shape: tuple[int, ...]
    names: tuple[str, ...]
    ranks: tuple[int, ...]


class RoundMeshes:
    """Gives each round its mesh: an object of an earlier round, with the groups of this one, where that is possible.

    A new mesh that is equal to an earlier one would get results of that one from DTensor's caches. Clearing the caches is
    the alternative, and then the first operations of the round take seconds. A mesh is used again if it has the same
    device type, shape, names and ranks, and if this process has the same coordinate in it: cached shapes of uneven
    shards depend on the coordinate. Without that, the caches are cleared and the mesh is new.

    Meshes that the program creates by itself have no such owner, so the caches are cleared at the end of their round.
    """

    def __init__(self) -> None:
        dtensor_caches.watch()
        self._meshes: dict[_Key, DeviceMesh] = {}
        #: Meshes that have the groups of the round.
        self._current: dict[_Key, DeviceMesh] = {}
        self._round: tuple[int, int] | None = None

    def mesh(
        self,
        shape: Sequence[int],
        names: Sequence[str],
        device_type: str = "cpu",
        ranks: Sequence[int] | None = None,
    ) -> DeviceMesh:
        """The mesh of these dimensions in the current round. All members must call it, in the same order.

        Args:
            shape: lengths of the dimensions.
            names: names of the dimensions.
            device_type: type of the devices, such as ``cuda``.
            ranks: ranks of the round in row-major order of their coordinates. Default: in order of rank.

        Raises:
            StateError: torch has made a group in another order than that of ``ranks``.
        """
        order = tuple(range(math.prod(shape)) if ranks is None else ranks)
        key = _Key(device_type, tuple(shape), tuple(names), order)
        world = _native.world()
        if self._round != (world.epoch, world.round):
            self._round = (world.epoch, world.round)
            self._current = {}
        if key not in self._current:
            self._current[key] = self._meshes[key] = self._revived(key, _create(key))
        return self._current[key]

    def _revived(self, key: _Key, new: DeviceMesh) -> DeviceMesh:
        """The mesh of an earlier round with the groups of ``new``, or ``new``."""
        earlier = self._meshes.get(key)
        if earlier is not None:
            if earlier.get_coordinate() == new.get_coordinate() and dtensor_caches.revive(earlier, new):
                return earlier
            dtensor_caches.forget_shardings()
        dtensor_caches.keep(new)
        return new


def _create(key: _Key) -> DeviceMesh:
    """A new mesh. Creates its groups."""
    options: dict[str, Any] = {}
    # The signature of the class would be that of __new__, which dtensor_caches replaces.
    parameters = inspect.signature(DeviceMesh.__init__).parameters
    if key.ranks != tuple(sorted(key.ranks)) and "preserve_rank_order" in parameters:
        # torch would sort the ranks of each group, and then FSDP and DTensor disagree on which shard is here.
        options["preserve_rank_order"] = True
    table = torch.tensor(key.ranks, dtype=torch.int).reshape(key.shape)
    mesh = DeviceMesh(key.device_type, table, mesh_dim_names=key.names, **options)
    for axis, place in enumerate(mesh.get_coordinate() or ()):
        rank = dist.get_rank(mesh.get_group(axis))
        if rank != place:
            raise StateError(
                f"this rank is number {rank} of its group in dimension {key.names[axis]!r} of the mesh, but has the coordinate"
                f" {place}: torch {torch.__version__} sorts the ranks of groups"
            )
    return mesh
