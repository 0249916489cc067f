"""The memory of a sharded state: pages for its tensors, and room for its commits.

The system takes many times as long to provide a page as a copy of its bytes does. So the pages of a round are used in the next one,
and further pages are provided while nobody waits for them. Commits come first: where they may need it, memory for tensors is freed.
"""

from __future__ import annotations

import threading

from elasticrun import _native

from .room import check_room

#: A part of the shard: more memory is neither kept nor provided for another round.
_KEPT = 2


class Memory:
    """The memory of one worker, over all rounds.

    Attributes:
        pool: pages for tensors. Each round gives it those of the model before, if the shard became smaller.
    """

    def __init__(self) -> None:
        self.pool = _native.PagePool()
        self.begin_round()

    def begin_round(self) -> None:
        """Forgets for which layouts there is memory: other programs may have taken it."""
        #: The layout for whose commits there is room.
        self._has_room_for = 0
        #: The layout for which memory is provided for the loss of a worker.
        self._is_ready_for = 0

    def provide(self, base: _native.DividedBase, shards: int | None, for_tensors: bool) -> None:
        """Begins to provide memory for a shard of a base that is divided anew.

        build() uses one processor, and takes longer in the first round of a process.

        Args:
            base: the base of the round.
            shards: number of shards of the round.
            for_tensors: provides as many bytes as the shard has for tensors, beside the commit.
        """
        nbytes = sum(map(base.layout.nbytes, range(base.layout.shards))) // (shards or 1)
        _native.provide_for_commit(nbytes)
        if for_tensors:
            self.pool.provide(nbytes)

    def has_room_alone(self, layout: _native.Layout, shard: int) -> bool:
        """Whether the commits of this worker need no memory that others may need."""
        growth, _ = _native.memory_for_commits(layout, shard, 0)
        return growth == 0

    def check_room(self, layout: _native.Layout, shard: int) -> None:
        """Looks for memory for commits, once for each layout, which is the same in all workers. All workers call it.

        Args:
            layout: how the state is divided.
            shard: the shard of this worker.

        Raises:
            StateError: a host has no memory for the commits.
        """
        if layout.hash == self._has_room_for:
            return
        nbytes, available = _native.memory_for_commits(layout, shard, 0)
        if available is not None and nbytes * _native.world().local_size > available // 2:
            self.pool.keep(0, 0)
        check_room(layout, shard)
        self._has_room_for = layout.hash

    def provide_for_loss(self, layout: _native.Layout, shard: int, larger: int) -> None:
        """Provides memory for the larger shard of a round with fewer workers, once for each layout, in threads of its own.

        A recovery would provide the same memory while all workers wait for it. At most half of the shard is provided, and a quarter
        of what the system has for the workers of this host. The pool keeps as much of its pages, up to half of the shard.

        Args:
            layout: how the state is divided.
            shard: the shard of this worker. It has a sealed commit.
            larger: bytes of the larger shard. Those of the shard if it does not grow.
        """
        if layout.hash == self._is_ready_for:
            return
        self._is_ready_for = layout.hash
        nbytes = layout.nbytes(shard)
        growth = min(larger - nbytes, nbytes // _KEPT)
        _, available = _native.memory_for_commits(layout, shard, 0)
        # For tensors and two commits.
        of_host = 3 * growth * _native.world().local_size
        if available is not None and of_host > available // 4:
            growth = 0
        if growth:
            _native.provide_for_commits(nbytes + growth)
        # To free pages takes as long as a part of the copies of a recovery.
        keep = threading.Thread(
            target=self.pool.keep, args=(growth, nbytes // _KEPT), name="elasticrun pages", daemon=True
        )
        keep.start()
