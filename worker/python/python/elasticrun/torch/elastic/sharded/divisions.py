"""Layouts of states whose members hold parts of the same tensors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from elasticrun import _native
from elasticrun.collectives import allgather_object
from elasticrun.errors import StateError

from .capture import Captured, Head

if TYPE_CHECKING:
    from elasticrun._native import TensorSpec

#: For each dimension of a mesh the dimension of the tensor that it cuts, and the split factor.
Axes = list[tuple[int, int] | None]


class Divisions:
    """The layout of a state whose members hold parts of the same tensors (FSDP, HSDP, tensor parallel).

    A description is the same in all members, although each has its own part: tensors on a part of the state's mesh count
    as replicated in the other dimensions.

    Args:
        mesh: the mesh of the state, over all ranks of the round.
    """

    #: Whether each layout is made of what all members have described.
    is_joint = False

    def __init__(self, mesh: DeviceMesh) -> None:
        self._mesh = mesh
        self._names = mesh.mesh_dim_names or ()
        self._meshes: list[tuple[list[int], list[int]]] = [table_of(mesh)]
        #: The shard of this rank in the last layout.
        self.shard = 0
        #: The shard of each rank in the last layout.
        self.by_rank: Sequence[int] = ()
        #: The number of shards of the last layout.
        self.shards = 1
        #: The descriptions of the tensors of the last layout.
        self._specs: list[TensorSpec] = []
        self._layout: _native.Layout | None = None
        #: Dimension of the state's mesh for each dimension of a mesh, or the index of a mesh of its own.
        self._known: dict[int, tuple[DeviceMesh, list[int] | int]] = {}

    def describe(self, name: str, tensor: torch.Tensor) -> TensorSpec:
        """The description of a tensor.

        Raises:
            StateError: the tensor cannot be divided and put together: partial sums, or a mesh that the state does not have.
        """
        dtype = str(tensor.dtype).removeprefix("torch.")
        division = self._division(name, tensor) if isinstance(tensor, DTensor) else None
        return name, dtype, tensor.element_size(), list(tensor.shape), division

    def layout(self, captured: Captured) -> _native.Layout:
        """The layout of a state of which this member has these tensors. The same object as long as they are described alike.

        Raises:
            StateError: as :meth:`describe`.
        """
        specs = [self.describe(name, tensor) for name, tensor in captured.tensors.items()]
        if self._layout is None or specs != self._specs:
            shards = self._shards(specs)
            meshes = [(of_mesh, [shards[rank] for rank in members]) for of_mesh, members in self._meshes]
            self.shards = max(shards) + 1
            self._specs, self._layout = specs, _native.Layout(self.shards, meshes, specs)
            self.shard, self.by_rank = shards[dist.get_rank()], shards
        return self._layout

    def tensors(self, captured: Captured) -> list[torch.Tensor | None]:
        """The tensors in the order in which the last layout was given them. None is one of which this member has no part."""
        return [*captured.tensors.values()]

    def head(self, captured: Captured) -> Head:
        """The head of all shards."""
        return captured.head

    def check(self, layout: _native.Layout) -> None:
        """Raises in all members if one has built another model. All members call it.

        Raises:
            StateError: the layouts of two members differ.
        """
        hashes = allgather_object(layout.hash, "the layout of a sharded state")
        if len(set(hashes)) == 1:
            return
        all_specs = allgather_object(self._specs, "the tensors of a sharded state")
        for rank, specs in enumerate(all_specs):
            for own, other in zip(sorted(all_specs[0]), sorted(specs), strict=False):
                if own != other:
                    raise _differs(rank, f"{_shown(other)} in place of {_shown(own)}")
            if len(specs) != len(all_specs[0]):
                raise _differs(rank, f"{len(specs)} tensors in place of {len(all_specs[0])}")
        raise StateError("workers have built models on different meshes: use the mesh that build() is given")

    def _shards(self, specs: Sequence[TensorSpec]) -> list[int]:
        """The shard of each rank. Ranks that differ only in dimensions of the mesh that divide no tensor have the same one."""
        shape, ranks = self._meshes[0]
        divides = [len(self._meshes) > 1] * len(shape)
        for *_, division in specs:
            if division is not None and division[0] == 0:
                divides = [known or axis is not None for known, axis in zip(divides, division[1], strict=True)]
        shards = [0] * len(ranks)
        for place, rank in zip(itertools.product(*map(range, shape)), ranks, strict=True):
            for index, length, divided in zip(place, shape, divides, strict=True):
                if divided:
                    shards[rank] = shards[rank] * length + index
        return shards

    def _division(self, name: str, tensor: DTensor) -> tuple[int, Axes]:
        axes = [axis_of(name, placement, tensor.dim()) for placement in tensor.placements]
        dimensions = self._dimensions(name, tensor.device_mesh)
        if isinstance(dimensions, int):
            return dimensions, axes
        of_state: Axes = [None] * self._mesh.ndim
        for dimension, axis in zip(dimensions, axes, strict=True):
            of_state[dimension] = axis
        return 0, of_state

    def _dimensions(self, name: str, mesh: DeviceMesh) -> list[int] | int:
        known = self._known.get(id(mesh))
        if known is None or known[0] is not mesh:
            known = self._known[id(mesh)] = mesh, self._look_up(name, mesh)
        return known[1]

    def _look_up(self, name: str, mesh: DeviceMesh) -> list[int] | int:
        names = mesh.mesh_dim_names or ()
        if names and set(names) <= set(self._names):
            return [self._names.index(dimension) for dimension in names]
        table = table_of(mesh)
        if sorted(table[1]) != sorted(self._meshes[0][1]):
            raise StateError(
                f"{name} is on a mesh of the ranks {table[1]}, which is neither the mesh of the state nor a part of it by the"
                f" names of its dimensions ({', '.join(self._names)}): use the mesh that build() is given"
            )
        if table not in self._meshes:
            self._meshes.append(table)
        return self._meshes.index(table)


def _differs(rank: int, how: str) -> StateError:
    return StateError(
        f"rank {rank} has built another model than rank 0: {how}; only along a dimension of the mesh that is called pipeline"
        " or pp may workers build different parts"
    )


def _shown(spec: TensorSpec) -> str:
    name, dtype, _, shape, _ = spec
    return f"{name} ({dtype}, {list(shape)})"


def table_of(mesh: DeviceMesh) -> tuple[list[int], list[int]]:
    """The shape of a mesh, and the ranks at its coordinates."""
    ranks: Any = mesh.mesh
    return list(ranks.shape), ranks.flatten().tolist()


def axis_of(name: str, placement: Placement, dimensions: int) -> tuple[int, int] | None:
    """What a dimension of a mesh cuts: a dimension of the tensor ``name`` and the split factor, or nothing.

    Raises:
        StateError: the placement is none of Shard, _StridedShard and Replicate.
    """
    if isinstance(placement, Replicate):
        return None
    kind = type(placement).__name__
    # torch has made _StridedShard a class beside Shard, and one below it.
    if isinstance(placement, Shard) or kind == "_StridedShard":
        strided: Any = placement
        return strided.dim % max(dimensions, 1), getattr(strided, "split_factor", 1)
    raise StateError(f"{name} has the placement {placement}: a state holds whole values, so reduce it first")
