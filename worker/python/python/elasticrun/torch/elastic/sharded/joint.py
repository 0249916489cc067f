"""Layouts of states whose members hold different tensors."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from elasticrun import _native
from elasticrun.collectives import allgather_object

from .capture import Captured, Head, OptimizerTensor
from .divisions import axis_of, table_of
from .grouping import Grouping
from .merging import MemberTensor, merge

if TYPE_CHECKING:
    from elasticrun._native import TensorSpec


@dataclass
class Description:
    """What a member holds, but for values. It seldom changes."""

    tensors: list[MemberTensor]
    #: As :attr:`Head.optimizer`.
    optimizer: dict[str, dict[str, OptimizerTensor]]
    #: Names of the parameters of each group of the optimizer.
    groups: list[list[str]]


class JointDivisions:
    """The layout of a state whose members hold different tensors: owners of optimizer states (ZeRO-1), stages of a pipeline.

    Members tell each other what they hold. That is one exchange for each commit, in which a member says only what has
    changed since the last one.

    Args:
        order: the ranks in the order of replica groups and shards.
    """

    #: Whether each layout is made of what all members have described.
    is_joint = True

    def __init__(self, order: Sequence[int]) -> None:
        self._order = order
        #: The shard of this rank in the last layout.
        self.shard = 0
        #: The shard of each rank in the last layout.
        self.by_rank: Sequence[int] = ()
        #: The number of shards of the last layout.
        self.shards = 1
        self._layout: _native.Layout | None = None
        self._specs: list[TensorSpec] = []
        self._head = Head()
        #: What the members have described of their optimizers, by parameter and key.
        self._optimizer: dict[str, dict[str, OptimizerTensor]] = {}
        #: By rank, the first rank whose optimizer has the same groups.
        self._same_groups: list[int] = []
        #: By rank, what each member has said last. Values that are no tensors are pickled.
        self._descriptions: list[Description] = []
        self._values: list[bytes] = []
        #: Ranks of a mesh by its id(). The mesh is kept, so that no other one gets the id.
        self._tables: dict[int, tuple[DeviceMesh, tuple[list[int], list[int]]]] = {}

    def layout(self, captured: Captured) -> _native.Layout:
        """The layout of a state of which this member has these tensors. All members call it.

        The same object as long as all members describe their tensors alike.

        Raises:
            StateError: a tensor cannot be divided and put together, or members describe it in different ways.
        """
        own = self._describe(captured)
        head = captured.head
        (grouping,) = head.groupings
        values = pickle.dumps((grouping.options, grouping.others, head.extra, head.values), protocol=5)
        rank = dist.get_rank()
        is_first = self._layout is None
        said = (
            own if is_first or own != self._descriptions[rank] else None,
            values if is_first or values != self._values[rank] else None,
        )
        heard = allgather_object(said, "the parts of a sharded state")
        if is_first:
            self._descriptions = [description for description, _ in heard]
            self._values = [of_rank for _, of_rank in heard]
        for index, (description, of_rank) in enumerate(heard):
            if description is not None:
                self._descriptions[index] = description
            if of_rank is not None:
                self._values[index] = of_rank
        if self._layout is None or any(description is not None for description, _ in heard):
            # Not the old layout if the descriptions contradict each other.
            self._layout = None
            self._note_optimizers()
            merged = merge([description.tensors for description in self._descriptions], self._order)
            self.shards = max(merged.shards) + 1
            self._layout = _native.Layout(self.shards, merged.meshes, merged.tensors)
            self._specs, self.shard, self.by_rank = merged.tensors, merged.shards[rank], merged.shards
        if any(part is not None for parts in heard for part in parts):
            self._head = self._merged_head()
        return self._layout

    def tensors(self, captured: Captured) -> list[torch.Tensor | None]:
        """The tensors in the order in which the last layout was given them. None is one of which this member has no part."""
        return [captured.tensors.get(name) for name, *_ in self._specs]

    def head(self, captured: Captured) -> Head:
        """The head of all shards."""
        del captured
        return self._head

    def check(self, layout: _native.Layout) -> None:
        """Nothing: all members have made the layout of the same descriptions."""

    def _describe(self, captured: Captured) -> Description:
        tensors = [self._describe_tensor(name, tensor) for name, tensor in captured.tensors.items()]
        (grouping,) = captured.head.groupings
        return Description(tensors, captured.head.optimizer, grouping.names)

    def _describe_tensor(self, name: str, tensor: torch.Tensor) -> MemberTensor:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if isinstance(tensor, DTensor):
            axes = [axis_of(name, placement, tensor.dim()) for placement in tensor.placements]
            place = *self._table(tensor.device_mesh), axes
        else:
            place = [1], [dist.get_rank()], [None]
        return name, dtype, tensor.element_size(), list(tensor.shape), place

    def _table(self, mesh: DeviceMesh) -> tuple[list[int], list[int]]:
        known = self._tables.get(id(mesh))
        if known is None or known[0] is not mesh:
            known = self._tables[id(mesh)] = mesh, table_of(mesh)
        return known[1]

    def _note_optimizers(self) -> None:
        self._optimizer, self._same_groups = {}, []
        first: dict[tuple[tuple[str, ...], ...], int] = {}
        for rank, description in enumerate(self._descriptions):
            for name, kinds in description.optimizer.items():
                self._optimizer.setdefault(name, kinds)
            groups = tuple(map(tuple, description.groups))
            self._same_groups.append(first.setdefault(groups, rank))

    def _merged_head(self) -> Head:
        """The head of all members. Of what several members have, it has the values of the lowest rank."""
        head = Head(optimizer=self._optimizer)
        # Most members have what another one has.
        distinct = dict.fromkeys(zip(self._same_groups, self._values, strict=True))
        seen: set[int] = set()
        for first_rank, pickled in distinct:
            options, others, extra, values = pickle.loads(pickled)
            for name, value in extra.items():
                head.extra.setdefault(name, value)
            for name, entry in values.items():
                head.values.setdefault(name, entry)
            if first_rank not in seen:
                seen.add(first_rank)
                head.groupings.append(Grouping(self._descriptions[first_rank].groups, options, others))
        return head
