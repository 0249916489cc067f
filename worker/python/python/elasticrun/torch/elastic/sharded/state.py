"""A state whose model is divided among the workers."""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.distributed.device_mesh import DeviceMesh

from elasticrun import _coordinates, _native, lifecycle
from elasticrun.codec import OwnedPayload
from elasticrun.collectives import allgather_object, barrier
from elasticrun.elastic import ObjectState
from elasticrun.errors import StateError

from ... import devices, distributed
from ...rounds import host_transport
from ..zero import is_zero
from .buffers import HostBuffers
from .building import Built, leave_meta, load_extra, parts_of, reset_parameters
from .capture import Captured, Head, capture, is_of_optimizer, make_optimizer_state, set_options
from .divisions import Divisions
from .grouping import regrouped
from .joint import JointDivisions
from .memory import Memory
from .mesh_shape import data_coordinates, mesh_shape, next_shard, ranks_by_seat
from .meshes import RoundMeshes
from .page_lock import PageLock
from .pages import in_place, no_collection
from .per_rank import PerRank, PerRankValues, Place
from .release import release
from .replica_groups import check_group, refuse_groups
from .writing import Guarded, Writing, names_of, sizes_of

_log = logging.getLogger("elasticrun")

#: Attributes that are not part of the replicated values.
_OWN = ("model", "optimizer", "others", "mesh", "data_rank", "data_size")

#: More threads do not copy memory faster.
_MAX_COPY_THREADS = 4

#: Dimensions of a mesh whose workers compute one step together, on the same rows.
_SAME_ROWS = {"tensor", "tp", "pipeline", "pp", "context", "cp", "sequence", "sp"}

#: Dimensions of a mesh along which workers hold different parts of the model.
_STAGES = {"pipeline", "pp"}


class ShardedState(ObjectState):
    """A model that is divided among workers (``fully_shard``, tensor parallel, pipeline), its optimizer, and replicated values.

    ::

        def build(mesh):
            model = Transformer(config)
            fully_shard(model, mesh=mesh)
            return model, torch.optim.AdamW(model.parameters())

        state = ShardedState(build, data=rows, step=0)

        @run
        def train(state):
            ...  # state.model, state.optimizer

    ``build`` is called in each round, since the number of workers changes the mesh. The model and the optimizer of the
    round before are freed first. Then the new ones get the values of the newest complete commit from the memory of the
    workers' hosts, whatever the number of workers was. Use them through the state, and keep no reference to them or their
    parameters from one round to the next.

    A model may be built on the meta device. In the first round its modules then get their values from
    ``reset_parameters()``.

    Each worker commits its own shard, at the speed of a copy of memory. A commit begins with a barrier.

    All workers build the same model, but along a dimension of the mesh that is called ``pipeline`` or ``pp``, where each builds the
    parameters of its stage, under names that they have in no other stage. With a ``ZeroRedundancyOptimizer`` a worker commits
    the optimizer state of the parameters that are assigned to it.

    Start the job with ``--replica-group-size all``, or with the number of workers that hold one whole model if there are copies of
    the model: the product of the dimensions of the mesh that divide it, which come last.

    Args:
        build: makes the model for a mesh. Returns the model, or a tuple of the model, its optimizer, and further objects
            with ``state_dict()`` and ``load_state_dict()``, such as a scheduler.
        mesh: name of the only dimension of the mesh, or the sizes of its dimensions by name. One of them may have no size
            (None): it has the rest of the workers.
        data_dims: names of the dimensions whose workers read different rows. Default: all but those called ``tensor``, ``tp``,
            ``pipeline``, ``pp``, ``context``, ``cp``, ``sequence``, ``sp``. The others read the same rows: a data set or a
            sampler of the state gives them the same batches, and counts them once.
        device: type of the devices. Default: ``cuda`` if there is one, else ``cpu``.
        per_rank: values by name that each worker has for itself, such as :class:`RandomGenerators`. A worker that has the
            same shard and rows as before goes on with those of the commit, and so does one that takes the place of a lost worker
            of its host. In others, as after a change of the number of workers, ``derive()`` makes them anew.
        replicas: only ``identical``: workers with one shard have the same values.
        replicated: values that are the same in all workers, as for :class:`ObjectState`.

    Attributes:
        model: the model of this round.
        optimizer: the optimizer of this round, or None.
        others: the further objects of this round.
        data_rank: the share of each batch that this worker reads, below ``data_size``.
        data_size: number of shares. Workers of one share read the same rows.
        mesh: the mesh of this round.

    Raises:
        StateError: a name is taken, or a value cannot be serialised.
    """

    if TYPE_CHECKING:
        model: torch.nn.Module
        optimizer: torch.optim.Optimizer
        others: tuple[Any, ...]
        mesh: DeviceMesh
        data_rank: int
        data_size: int

    #: What the commit that has begun writes.
    _prepared: tuple[Captured, _native.Layout] | None

    #: The commit that is copied while training goes on.
    _writing: Writing | None

    #: Why this worker has not made a commit of the round that others may have made.
    _lost: str | None

    #: The layout of the newest commit.
    _layout: _native.Layout | None

    #: The base of which the state was made, until training begins: to unmap it takes as long as a part of the copies.
    _base: _native.DividedBase | None

    def __init__(
        self,
        build: Callable[[DeviceMesh], Built],
        *,
        mesh: Sequence[str] | Mapping[str, int | None] = ("shard",),
        data_dims: Sequence[str] | None = None,
        device: str | None = None,
        per_rank: Mapping[str, PerRank] | None = None,
        replicas: str = "identical",
        **replicated: object,
    ) -> None:
        if replicas != "identical":
            raise StateError(
                f"replicas={replicas!r}: copies of a shard complete each other's commits, so they must be identical, and models"
                " that are trained apart (LocalSGD, DiLoCo) cannot be a sharded state"
            )
        for name in replicated:
            if name in _OWN:
                raise StateError(f"a value of a sharded state cannot be called {name!r}: build() returns it")
        self._per_rank = PerRankValues(per_rank or {})
        self._build = build
        self._dimensions = mesh
        self._data_dims = data_dims
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._meshes = RoundMeshes()
        self._lock = PageLock()
        self._memory = Memory()
        #: Whether training goes on while a commit is copied.
        self._behind = False
        self._writing = None
        #: Whether optimizer.step() waits for copies.
        self._guards = False
        self._divisions: Divisions | JointDivisions | None = None
        #: Whether the model of the last round was on the meta device, so that its memory was allocated after build().
        self._begins_empty = False
        self._forget()
        super().__init__(**replicated)

    def restore(self) -> None:
        """Refused in a round: the model goes back to a commit only together with those of the other workers.

        Raises:
            StateError: this worker is in a round.
        """
        if lifecycle.has_joined():
            raise StateError(
                "a sharded state is restored at the start of a round only, in all workers together: let the error that"
                " interrupts training pass to elastic.run"
            )
        super().restore()

    def sync(self) -> None:
        """Refused: each worker has a shard of its own.

        Raises:
            StateError: always.
        """
        raise StateError("a sharded state cannot be broadcast from rank 0: elastic.run brings each worker to its shard")

    def commit(self, async_: bool = False) -> None:
        """Commits the state: later failures do not lose it. A commit is also a boundary. It begins with a barrier.

        Args:
            async_: copies parameters and the state of the optimizer while training goes on. The next ``optimizer.step()`` comes
                after the copies, so until then only the optimizer may change them; buffers may change at once. The commit
                counts once it is copied and the optimizer steps, commits or leaves the round: a worker that is killed before
                loses it, and training goes on from the one before. Has no effect without an optimizer of torch.

        Raises:
            HostsUpdated: the hosts of the job change, and the commit is made.
            WorkersFailed: a worker of the round failed.
            StateError: a part of the state cannot be divided, workers have different layouts, or a parameter was changed
                while an asynchronous commit copied it. The previous commit stays the newest.
        """
        self._behind = async_
        try:
            super().commit()
        finally:
            self._behind = False

    def check_host_updates(self) -> None:
        """A boundary without a commit, as of other states. An asynchronous commit that is copied counts from here on."""
        if self._writing is not None and self._writing.is_copied():
            self._settle()
        super().check_host_updates()

    # Methods that elastic.run calls.

    def _hooks(self) -> tuple[bool, ...]:
        return super()._hooks()[0], False, False, True

    def _begin_round(self) -> None:
        if self._device == "cuda":
            devices.compare_gpus(host_transport())
        distributed.refresh()
        with no_collection(self.model is not None):
            super()._begin_round()

    def _load_shards(self) -> None:
        world = _native.world()
        is_new = self.model is None
        if self._writing is not None:
            # Its sources are freed below.
            self._writing.wait()
        if not is_new:
            release(self.model, self.optimizer, self._memory.pool, keeps_all=self._begins_empty)
        self._forget()
        distributed.require_process_group()
        shape, names = mesh_shape(self._dimensions, world.size)
        order = ranks_by_seat(world.order, world.size)
        self.mesh = self._meshes.mesh(shape, names, self._device, order)
        places = data_coordinates(self.mesh, self._dims_of_data(names))
        _coordinates.enter(places)
        self.data_rank, self.data_size = places.index, places.count
        base = _native.load_shards()
        # Buffers that are page-locked must not move.
        if base is not None and self._device == "cpu":
            self._memory.provide(base, world.shards, for_tensors=is_new)
        begun = time.monotonic()
        self._adopt(self._build(self.mesh))
        is_joint = is_zero(self.optimizer) or not _STAGES.isdisjoint(names)
        self._divisions = JointDivisions(order) if is_joint else Divisions(self.mesh)
        built = time.monotonic()
        self._begins_empty = leave_meta(self.model, self._device)
        if base is None:
            if self._begins_empty:
                reset_parameters(self.model)
            self._restore_per_rank(None, "")
            # What training has changed before the first commit was complete counts for nothing.
            ObjectState._load(self, *self._initial())
            return
        copied, fetched = self._fill(base)
        self._base = base
        _native.loaded_shards()
        took = time.monotonic()
        _log.info(
            "round %d: built the model in %.0f ms, loaded %.1f MB of commit %s in %.0f ms, %.1f MB of it from other hosts",
            world.round,
            (built - begun) * 1e3,
            copied / 1e6,
            base.id,
            (took - built) * 1e3,
            fetched / 1e6,
        )

    def _seal_first(self) -> None:
        captured, layout = self._prepare()
        assert self._divisions is not None
        # Others may still build their model, so this copies first if it needs no further memory. It counts once it is sealed.
        may_copy = self._memory.has_room_alone(layout, self._divisions.shard)
        writing = self._write(captured, layout, is_first=True) if may_copy else None
        self._divisions.check(layout)
        if not self._has_same_values(captured):
            # Reset callbacks have changed values, which run in survivors only. Or workers have committed different ones.
            writing = None
            self._broadcast()
            self._take_options(captured)
            captured, layout = self._prepare()
        self._memory.check_room(layout, self._divisions.shard)
        self._seal(writing or self._write(captured, layout, is_first=True))
        barrier()
        _native.all_sealed()
        if self._base is not None:
            # The first round of a job has no optimizer state yet.
            self._provide_for_loss(layout)
        # The commit is newer.
        self._saved = self._base = None

    def _commit(self) -> None:
        if self._lost is not None:
            # Its id would be that of a commit that others have made.
            raise StateError(f"this worker cannot commit in this round any more: {self._lost}")
        # Before others can learn that this worker has come so far: they then overwrite the commit before that one.
        self._settle()
        if self._behind and self._layout is not None:
            self._provide_for_loss(self._layout)
        self._agree()
        prepared, self._prepared = self._prepared or self._prepare(), None
        try:
            self._writing = self._write(*prepared, behind=self._behind)
        except BaseException as error:
            self._lost = repr(error)
            raise
        if not self._behind or self._writing.is_copied():
            self._settle()
            self._provide_for_loss(prepared[1])

    def _agree(self) -> None:
        # Once all have answered, all have sealed the commit before, so the one that this commit overwrites is not needed. A
        # commit of different layouts would never be complete.
        captured, layout = self._prepare()
        self._prepared = captured, layout
        assert self._divisions is not None
        self._divisions.check(layout)
        self._memory.check_room(layout, self._divisions.shard)
        super()._agree()

    def _settle(self) -> None:
        if self._writing is not None:
            self._seal(self._writing)
            self._committed()

    # The parts of the above.

    def _dims_of_data(self, names: Sequence[str]) -> list[str]:
        if self._data_dims is None:
            return [name for name in names if name not in _SAME_ROWS]
        for name in self._data_dims:
            if name not in names:
                raise StateError(
                    f"data_dims={list(self._data_dims)}: the mesh has no dimension {name!r}, but {', '.join(names)}"
                )
        return list(self._data_dims)

    def _forget(self) -> None:
        self.model = cast(Any, None)
        self.optimizer = cast(Any, None)
        self.others = ()
        self.mesh = cast(Any, None)
        self.data_rank, self.data_size = 0, 1
        #: Whether this worker was in an earlier round, so that its reset callbacks have run.
        self._is_survivor = False
        self._memory.begin_round()
        self._layout = None
        self._prepared = self._writing = None
        self._lost = self._base = None

    def _adopt(self, built: Built) -> None:
        self.model, self.optimizer, self.others = parts_of(built)
        if is_zero(self.optimizer):
            refuse_groups("a ZeroRedundancyOptimizer divides its state among all workers")
        # Some subclasses do not call the constructor.
        self._guards = isinstance(self.optimizer, torch.optim.Optimizer) and hasattr(
            self.optimizer, "_optimizer_step_pre_hooks"
        )
        if self._guards:
            self.optimizer.register_step_pre_hook(self._before_step)

    def _prepare(self) -> tuple[Captured, _native.Layout]:
        """What this worker holds, and the layout of all. With joint divisions all workers call it."""
        assert self._divisions is not None
        captured = capture(self.model, self.optimizer, self.others)
        layout = self._divisions.layout(captured)
        check_group(self._dimensions, self._divisions.shards, self._divisions.shard)
        return captured, layout

    def _provide_for_loss(self, layout: _native.Layout) -> None:
        assert self._divisions is not None
        world, shard = _native.world(), self._divisions.shard
        larger = layout.nbytes(shard)
        # Memory that is page-locked must not move.
        if self._device == "cpu" and world.replica_group_size is None:
            larger = next_shard(self._dimensions, world.size, layout.shards, larger)
        self._memory.provide_for_loss(layout, shard, larger)

    def _reset_survivor(self) -> None:
        self._is_survivor = True
        super()._reset_survivor()

    def _take_options(self, captured: Captured) -> None:
        """Gives optimizer and further objects the options of the first survivor that has the same groups. All workers call it."""
        (own,) = captured.head.groupings
        gathered = allgather_object((self._is_survivor, own), "the options of a sharded state")
        # The sort is stable.
        groupings = [grouping for _, grouping in sorted(gathered, key=lambda told: not told[0])]
        grouping = regrouped(groupings, own.names)
        if self.optimizer is not None:
            set_options(self.optimizer, grouping)
        for other, state in zip(self.others, grouping.others, strict=True):
            other.load_state_dict(state)

    def _has_same_values(self, captured: Captured) -> bool:
        """Whether all workers have the same replicated values and options. All workers call it."""
        payload = self._payload().copy()
        digest = hashlib.blake2b(payload.head, digest_size=16)
        for view in payload.views():
            digest.update(view)
        # Those of the stages of a pipeline differ, so that they are always exchanged.
        digest.update(pickle.dumps(captured.head.groupings, protocol=5))
        return len(set(allgather_object(digest.digest(), "the values of a sharded state"))) == 1

    def _head(self, captured: Captured) -> tuple[bytes | None, bytes]:
        """The values of this worker alone, and the head of its shard, which has them too."""
        assert self._divisions is not None
        own = self._per_rank.save(self._place())
        return own, pickle.dumps((self._divisions.head(captured), self._payload().copy(), own), protocol=5)

    def _write(
        self, captured: Captured, layout: _native.Layout, *, is_first: bool = False, behind: bool = False
    ) -> Writing:
        """Begins to copy a commit. Unless it is ``behind``, all is copied before the next operation of the model."""
        assert self._divisions is not None
        own, head = self._head(captured)
        tensors = self._divisions.tensors(captured)
        shard = self._divisions.shard
        if self._device == "cuda":
            self._lock.expect(layout.hash)
        self._layout = layout
        opened = _native.open_shard(layout, shard, head, list(sizes_of(tensors)), is_first)
        guarded = Guarded(self.optimizer, names_of(captured.tensors)) if behind and self._guards else None
        writing = Writing(opened, own)
        writing.copy(tensors, self._lock, guarded)
        return writing

    def _seal(self, writing: Writing) -> None:
        self._writing = None
        try:
            commit = writing.seal()
        except BaseException as error:
            self._lost = repr(error)
            raise
        self._per_rank.committed(commit, writing.own)

    def _before_step(self, *_: object) -> None:
        """The optimizer is about to change what a commit may still copy."""
        if self._writing is not None:
            self._writing.release()
            if self._writing.is_copied():
                self._settle()

    def _fill(self, base: _native.DividedBase) -> tuple[int, int]:
        """Gives model, optimizer and values the contents of a commit. Returns its bytes, and those from other hosts.

        Tensors that were allocated just now take pages of the pool.
        """
        heads = base.heads()
        head: Head
        values: OwnedPayload
        head, values, _ = pickle.loads(heads[min(heads)])
        stored = {name: (dtype, shape) for name, dtype, shape in base.layout.tensors()}
        if self.optimizer is not None:
            make_optimizer_state(self.model, self.optimizer, head, stored)
        captured, layout = self._prepare()
        assert self._divisions is not None
        new = [tensor for name, tensor in captured.tensors.items() if self._begins_empty or is_of_optimizer(name)]
        self._memory.pool.give(in_place(new))
        host = HostBuffers(self._divisions.tensors(captured))
        copied = base.fill(layout, self._divisions.by_rank, host.buffers(), _copy_threads())
        host.write_back()
        load_extra(self.model, head.extra)
        (own,) = captured.head.groupings
        others = regrouped(head.groupings, own.names).others
        if len(others) != len(self.others):
            raise StateError(
                f"build() returned {len(self.others)} objects with a state_dict(), and commit {base.id} has {len(others)}"
            )
        for other, state in zip(self.others, others, strict=True):
            other.load_state_dict(state)
        ObjectState._load(self, values.head, values.views())
        shard = self._divisions.shard
        is_alike = shard in heads and layout.hash == base.layout.hash
        self._restore_per_rank(pickle.loads(heads[shard])[2] if is_alike else None, base.id)
        return copied

    def _restore_per_rank(self, stored: bytes | None, commit: str) -> None:
        self._per_rank.restore(stored, commit, self._place())

    def _place(self) -> Place:
        assert self._divisions is not None
        return Place(self.data_rank, self.data_size, self._divisions.shard, self._divisions.shards)

    def _initial(self) -> tuple[bytes, list[memoryview]]:
        """The replicated values as the constructor was given them."""
        if self._saved is None:
            raise StateError("there is nothing to begin with: the job has no commit, and this worker has made one")
        return self._saved.head, self._saved.views()


def _copy_threads() -> int:
    """Threads of a copy, so that the workers of a host share its processors."""
    return max(1, min(_MAX_COPY_THREADS, len(os.sched_getaffinity(0)) // _native.world().local_size))
