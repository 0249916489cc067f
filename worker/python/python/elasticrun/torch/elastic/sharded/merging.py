"""What members hold of tensors, put together to the layout of the whole state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elasticrun.errors import StateError

from .divisions import Axes

if TYPE_CHECKING:
    from elasticrun._native import TensorSpec

#: Name, dtype, bytes of an element, shape; and the mesh of which this member is a part: its shape, its ranks, and what each of
#: its dimensions cuts.
MemberTensor = tuple[str, str, int, list[int], tuple[list[int], list[int], Axes]]


@dataclass
class Merged:
    """The arguments of a :class:`elasticrun._native.Layout`, and the shard of each rank."""

    tensors: list[TensorSpec]
    meshes: list[tuple[list[int], list[int]]]
    shards: list[int]


@dataclass
class _Tensor:
    """A tensor with the meshes on which it lies. Each has all of it."""

    first_rank: int
    spec: MemberTensor
    #: The members that have described it on a mesh, by the ranks of the mesh.
    members: dict[tuple[int, ...], list[int]] = field(default_factory=dict)


def merge(described: Sequence[Sequence[MemberTensor]], order: Sequence[int] | None = None) -> Merged:
    """The layout of a state of which each rank holds the tensors that it describes.

    A tensor lies on as many meshes of equal shape as there are copies of it: one for each worker that has a plain tensor, and
    one for each group of workers among which a DTensor is divided. They become one mesh with a dimension more, which copies.

    Ranks that hold the same parts of the same tensors have the same shard. Shards are numbered in the order of the ranks in
    ``order``, by default in order of rank.

    Raises:
        StateError: members describe a tensor in different ways, or a rank of a mesh has not described a tensor on it.
    """
    tensors: dict[str, _Tensor] = {}
    for rank, of_rank in enumerate(described):
        for spec in of_rank:
            tensor = tensors.setdefault(spec[0], _Tensor(rank, spec))
            if not _is_alike(tensor.spec, spec):
                raise StateError(
                    f"ranks {tensor.first_rank} and {rank} have different tensors of one name: {_shown(tensor.spec)} and"
                    f" {_shown(spec)}"
                )
            tensor.members.setdefault(tuple(spec[4][1]), []).append(rank)
    for name, tensor in tensors.items():
        _check_members(name, tensor)
    shards = _shards(tensors, range(len(described)) if order is None else order)
    specs: list[TensorSpec] = []
    meshes: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    for name, tensor in tensors.items():
        _, dtype, itemsize, shape, (mesh_shape, _, axes) = tensor.spec
        of_mesh = (len(tensor.members), *mesh_shape)
        ranks = tuple(rank for table in tensor.members for rank in table)
        index = meshes.setdefault((of_mesh, ranks), len(meshes))
        specs.append((name, dtype, itemsize, shape, (index, [None, *axes])))
    tables = [(list(of_mesh), [shards[rank] for rank in ranks]) for of_mesh, ranks in meshes]
    return Merged(specs, tables, shards)


def _is_alike(one: MemberTensor, other: MemberTensor) -> bool:
    (shape, _, axes), (other_shape, _, other_axes) = one[4], other[4]
    return one[:4] == other[:4] and shape == other_shape and axes == other_axes


def _check_members(name: str, tensor: _Tensor) -> None:
    for table, members in tensor.members.items():
        if sorted(table) != members:
            raise StateError(
                f"{name} is divided among the ranks {list(table)}, and the ranks {members} have a part of it: each worker of"
                " the mesh must build it on that mesh"
            )


def _shards(tensors: dict[str, _Tensor], order: Sequence[int]) -> list[int]:
    """The shard of each rank."""
    held: list[list[tuple[int, int]]] = [[] for _ in order]
    for index, tensor in enumerate(tensors.values()):
        mesh_shape, _, axes = tensor.spec[4]
        for table in tensor.members:
            for place, rank in enumerate(table):
                held[rank].append((index, _divided(place, mesh_shape, axes)))
    numbers: dict[tuple[tuple[int, int], ...], int] = {}
    for rank in order:
        numbers.setdefault(tuple(held[rank]), len(numbers))
    return [numbers[tuple(of_rank)] for of_rank in held]


def _divided(place: int, shape: list[int], axes: Axes) -> int:
    """The index of a place of a mesh among those that differ in a dimension which divides."""
    index, unit = 0, 1
    for length, axis in zip(reversed(shape), reversed(axes), strict=True):
        if axis is not None:
            index += place % length * unit
            unit *= length
        place //= length
    return index


def _shown(spec: MemberTensor) -> str:
    name, dtype, _, shape, (mesh_shape, ranks, axes) = spec
    plain = mesh_shape == [1] and axes == [None]
    return f"{name} ({dtype}, {shape}{'' if plain else f', divided {axes} among the ranks {ranks}'})"
