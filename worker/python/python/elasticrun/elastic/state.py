"""The base of all states: commits, boundaries, reset callbacks."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import _native, lifecycle
from .._native import SetupStep
from ..codec import Payload
from ..collectives import broadcast_object
from ..errors import StateError

__all__ = ["State"]

#: Argument of :meth:`State.on_hosts_updated`. The driver does not report whether hosts were added, removed, or both.
MIXED = 3

_EMPTY = Payload(b"", [], [])


class State:
    """Base of all states. For a custom state, override ``save``, ``restore`` and ``sync``.

    ``save`` copies the state, ``restore`` returns to the copy, and ``sync`` copies the state of rank 0 to all workers with
    collectives. ``commit`` saves, and records the commit in all workers. Rank 0 of the next round is a worker that has the
    newest commit, if any such worker survives. The copy of a custom state is memory of this process, so unlike that of
    :class:`ObjectState` it does not survive the loss of all workers. A round whose workers have never been synced then raises
    :class:`~elasticrun.errors.StateError`, because training would start over.

    The arguments exist for scripts written for Horovod, and have no effect.
    """

    def __init__(
        self,
        bcast_object: Callable[..., Any] | None = None,
        get_rank: Callable[[], int] | None = None,
    ) -> None:
        del bcast_object, get_rank
        self._host_messages: queue.Queue[tuple[float, int]] = queue.Queue()
        self._last_updated_timestamp = 0.0
        self._reset_callbacks: list[Callable[[], object]] = []
        self._commits_per_check = 1
        self._commits = 0
        #: The payload that the native module is reading.
        self._payload_in_use: Payload | None = None

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Registers callbacks that run in order at the start of each round, in workers that were in an earlier round.

        The state is then the newest commit of this worker, which after a failure may be one step behind that of rank 0.
        Use a callback to adapt values that depend on ``size()``. All other workers receive the state as the callbacks of
        rank 0 leave it. An exception of a callback propagates to the caller of the training function, like an exception of
        that function.
        """
        self._reset_callbacks.extend(callbacks)

    def set_check_hosts_added_delay(self, commits: int) -> None:
        """Checks for changed hosts only at every ``commits``-th commit of a round.

        All workers must set the same number. :meth:`check_host_updates` still checks at each call.

        Raises:
            ValueError: ``commits`` is less than 1.
        """
        if commits < 1:
            raise ValueError(f"set_check_hosts_added_delay({commits}): must be at least 1")
        self._commits_per_check = commits

    def commit(self, async_: bool = False) -> None:
        """Commits the state: later failures do not lose it. A commit is also a boundary.

        A commit copies the state into memory of the agent. It sends no message unless the state contains a data set, whose
        workers exchange the rows that they have processed. ``async_`` has no effect: the copy is always synchronous, except for
        a :class:`~elasticrun.torch.elastic.ShardedState`.

        If another worker fails while this one is about to commit, the commit is made and the failure is raised afterwards,
        so that no computed step is lost. Commits are refused once an operation of the round was aborted or this worker has
        raised the failure.

        Raises:
            HostsUpdated: the hosts of the job change, and the commit is made.
            WorkersFailed: a worker of the round failed.
            StateError: a part of the state cannot be serialised. The previous commit stays the newest.
        """
        del async_
        if not self._commit_without_check():
            return
        self._commits += 1
        if self._commits % self._commits_per_check == 0 and _native.boundary():
            self._settle()
            raise _native.leave_at_boundary()

    def _commit_without_check(self) -> bool:
        """Commits the state without a check for changed hosts. Outside of a round it saves, and returns False."""
        if not lifecycle.has_joined():
            lifecycle.require("commit")
            self.save()
            return False
        self._commit()
        return True

    def check_host_updates(self) -> None:
        """A boundary without a commit: checks whether the hosts of the job change. It sends no message.

        If the hosts change, all workers stop at the same check or commit, where the state is committed.

        Raises:
            HostsUpdated: the hosts of the job change, and the state is committed.
            WorkersFailed: a worker of the round failed.
        """
        if not lifecycle.has_joined():
            lifecycle.require("check_host_updates")
            return
        if _native.boundary():
            self._commit()
            raise _native.leave_at_boundary()

    def save(self) -> None:
        """Copies the state in this process, for :meth:`restore`."""
        raise NotImplementedError(f"{type(self).__qualname__} has no save()")

    def restore(self) -> None:
        """Restores the last save or commit."""
        raise NotImplementedError(f"{type(self).__qualname__} has no restore()")

    def sync(self) -> None:
        """Copies the state of rank 0 to all workers. All workers call it."""
        raise NotImplementedError(f"{type(self).__qualname__} has no sync()")

    def reset(self) -> None:
        """Called before the reset callbacks. Override it to adapt to the members of a round."""

    def on_reset(self) -> None:
        """Calls :meth:`reset` and the reset callbacks."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Queues a message in ``_host_messages`` that the hosts are about to change. Called from another thread.

        Args:
            timestamp: seconds since 1970.
            update_res: always 3 (mixed). Horovod distinguishes removed (1), added (2) and both (3).
        """
        self._last_updated_timestamp = timestamp
        self._host_messages.put((timestamp, update_res))

    # Methods that elastic.run calls.

    def _on_update(self, _round: int) -> None:
        self.on_hosts_updated(time.time(), MIXED)

    def _begin_round(self) -> None:
        """Brings the state to the base of the round that was just joined."""
        self._commits = 0
        for step in _native.setup(*self._hooks()):
            match step:
                case SetupStep.FETCH_BASE:
                    _native.fetch_base()
                case SetupStep.RESTORE_NEWEST:
                    self._restore_newest()
                case SetupStep.RESTORE:
                    self.restore()
                case SetupStep.RESET:
                    self._reset_survivor()
                case SetupStep.REQUIRE_BASE:
                    self._require_base()
                case SetupStep.SYNC_OWN:
                    self.sync()
                case SetupStep.SYNC | SetupStep.SYNC_FRESH:
                    self._sync_to_base(fresh=step == SetupStep.SYNC_FRESH)
                case SetupStep.LOAD_SHARDS:
                    self._load_shards()
                case SetupStep.SEAL_FIRST:
                    self._seal_first()
                case SetupStep.ADAPT:
                    self._enter_round()
                case SetupStep.TRAIN:
                    _native.training()

    def _require_base(self) -> None:
        """Raises in all workers if the state that rank 0 is about to broadcast is its initial one, although the job has commits.

        Raises:
            StateError: workers of this job have committed, and none of the workers that held the commit is left.
        """
        if broadcast_object(_native.lacks_base(), 0, "the base of the round"):
            raise StateError(
                f"the committed state of {type(self).__qualname__} was kept by workers that are gone, and training would"
                " begin anew: commits outlive all workers in an ObjectState and its subclasses, or start the job again"
                " from a checkpoint of your own"
            )

    # Methods that a subclass overrides whose state the agent stores.

    def _hooks(self) -> tuple[bool, ...]:
        """Whether reset callbacks, ``restore`` and ``sync`` are user code, and whether the state is divided among workers."""
        return True, True, True

    def _restore_newest(self) -> None:
        """Restores the newest commit that the agent stores for this process, if there is one."""
        self.restore()

    def _sync_to_base(self, *, fresh: bool) -> None:
        """Brings the state to the base of the round. ``fresh``: reset callbacks have changed the state of this worker."""
        # After the user's sync(), which may have been interrupted: only now does this worker hold the base.
        _native.sync(self._head_and_buffers, self._load, fresh)

    def _reset_survivor(self) -> None:
        """Calls reset callbacks, in a worker that was in an earlier round."""
        self.on_reset()

    def _load_shards(self) -> None:
        """Makes a divided state for the round, and fills it from the shards of the base."""

    def _seal_first(self) -> None:
        """Seals the shard of this worker as commit 0 of the round, and waits until all workers have."""

    def _enter_round(self) -> None:
        """Adapts the state, which is now the same in all workers, to the members of the round."""

    def _payload(self) -> Payload:
        """The serialised state, for :meth:`_load`."""
        return _EMPTY

    def _load(self, head: bytes, buffers: Sequence[memoryview]) -> None:
        """Restores a state that :meth:`_payload` serialised. The buffers are valid only during the call."""

    def _commit(self) -> None:
        self._agree()
        self._save_locally()
        self._write_commit()
        self._committed()

    def _committed(self) -> None:
        """Called after each commit of this process, once it counts."""

    def _settle(self) -> None:
        """Completes a commit that is still being made."""

    def _agree(self) -> None:
        """Called before each commit in all workers. It may call collectives."""

    def _save_locally(self) -> None:
        """First part of a commit: saves in this process."""
        self.save()

    def _write_commit(self) -> None:
        """Second part of a commit: writes to memory of the agent."""
        payload = self._payload()
        _native.commit(payload.head, payload.buffers)

    def _head_and_buffers(self) -> tuple[bytes, list[tuple[int, int]]]:
        # The native module reads the buffers after this has returned, so the payload must stay alive.
        payload = self._payload_in_use = self._payload()
        return payload.head, payload.buffers
