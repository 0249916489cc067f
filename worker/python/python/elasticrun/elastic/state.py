"""What every state is: commits, boundaries, reset callbacks."""

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

#: What :meth:`State.on_hosts_updated` is told: the driver does not say whether hosts come, go, or both.
MIXED = 3

_EMPTY = Payload(b"", [], [])


class State:
    """Base of all states; for one of your own, override ``save``, ``restore`` and ``sync``.

    ``save`` keeps a copy of what there is, ``restore`` goes back to it, and ``sync`` brings what rank 0 has to
    all workers, with collectives. ``commit`` saves, and marks the place in all workers; it is rank 0 of the next
    round then that has the newest commit, if any worker of this one lives. What such a state saves is memory
    of this process, so unlike :class:`ObjectState` it does not outlive all workers. A round of workers that have
    never been synced raises :class:`~elasticrun.errors.StateError` then: they would begin anew.

    The arguments are taken for scripts that come from Horovod; they are not needed.
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
        #: What the native side is reading.
        self._lent: Payload | None = None

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Has ``callbacks`` called in order at the start of each round, in workers that were in a round before.

        The state is that of the newest commit of this worker then, which after a failure may be one step behind
        that of rank 0. Adapt here what depends on ``size()``; all others get the state as the callbacks of rank 0
        leave it. What a callback raises goes to the caller of the training function, as an error of that
        function does.
        """
        self._reset_callbacks.extend(callbacks)

    def set_check_hosts_added_delay(self, commits: int) -> None:
        """Looks for changed hosts only at each ``commits``-th commit of a round; 1 is each.

        All workers set the same. :meth:`check_host_updates` looks at each call all the same.

        Raises:
            ValueError: ``commits`` is less than 1.
        """
        if commits < 1:
            raise ValueError(f"set_check_hosts_added_delay({commits}): must be at least 1")
        self._commits_per_check = commits

    def commit(self, async_: bool = False) -> None:
        """Commits the state: from here on no failure loses what it holds. A boundary, too.

        Copies into memory of the agent, and talks to nobody unless the state holds a data set: then all workers tell
        each other which rows they have processed. With ``async_`` it returns when what can still
        change has been copied; that of the host's memory is copied at once either way.

        A worker that is on its way to a commit when another one fails makes it, and is told behind it: nothing of what it
        computed is lost. Once an operation of it was cut short, or it was told, its commits are refused.

        Raises:
            HostsUpdated: the hosts of the job change, and the commit is made.
            WorkersFailed: a worker of the round failed.
            StateError: a part of the state cannot be serialised, and the commit before is the newest.
        """
        del async_
        if not lifecycle.has_joined():
            lifecycle.require("commit")
            self.save()
            return
        self._commit()
        self._commits += 1
        if self._commits % self._commits_per_check == 0 and _native.boundary():
            raise _native.leave_here()

    def check_host_updates(self) -> None:
        """A boundary without a commit: looks whether the hosts of the job change. Costs no message.

        If they do, all workers stop at the same check or commit, and it commits the state.

        Raises:
            HostsUpdated: the hosts of the job change, and the state is committed.
            WorkersFailed: a worker of the round failed.
        """
        if not lifecycle.has_joined():
            lifecycle.require("check_host_updates")
            return
        if _native.boundary():
            self._commit()
            raise _native.leave_here()

    def save(self) -> None:
        """Keeps a copy for :meth:`restore`, in this process."""
        raise NotImplementedError(f"{type(self).__qualname__} has no save()")

    def restore(self) -> None:
        """Goes back to what was saved or committed last."""
        raise NotImplementedError(f"{type(self).__qualname__} has no restore()")

    def sync(self) -> None:
        """Brings what rank 0 has to all workers. All call it."""
        raise NotImplementedError(f"{type(self).__qualname__} has no sync()")

    def reset(self) -> None:
        """Called before the reset callbacks: a place to adapt to the new world."""

    def on_reset(self) -> None:
        """Calls :meth:`reset` and the reset callbacks."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Puts a message into ``_host_messages``: the hosts are about to change. Called from another thread.

        Args:
            timestamp: seconds since 1970.
            update_res: 3; that hosts were removed (1), added (2), or both (3) is not told apart.
        """
        self._last_updated_timestamp = timestamp
        self._host_messages.put((timestamp, update_res))

    # What elastic.run calls.

    def _told_of_update(self, _round: int) -> None:
        self.on_hosts_updated(time.time(), MIXED)

    def _begin_round(self) -> None:
        """Brings the state to what the round begins with, which was just joined."""
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
                    self.on_reset()
                case SetupStep.REQUIRE_BASE:
                    self._require_base()
                case SetupStep.SYNC_OWN:
                    self.sync()
                case SetupStep.SYNC | SetupStep.SYNC_FRESH:
                    self._sync_to_base(fresh=step == SetupStep.SYNC_FRESH)
                case SetupStep.ADAPT:
                    self._enter_round()
                case SetupStep.TRAIN:
                    _native.training()

    def _require_base(self) -> None:
        """Raises in all workers if what rank 0 is about to bring to them is what its process began with.

        Raises:
            StateError: workers of this job have committed since, and none of those that have seen it is left.
        """
        if broadcast_object(_native.lacks_base(), 0, "the base of the round"):
            raise StateError(
                f"the committed state of {type(self).__qualname__} was kept by workers that are gone, and training would"
                " begin anew: commits outlive all workers in an ObjectState and its subclasses, or start the job again"
                " from a checkpoint of your own"
            )

    # What a subclass whose state the agent keeps overrides.

    def _hooks(self) -> tuple[bool, bool, bool]:
        """Whether reset callbacks, ``restore`` and ``sync`` are the user's own code."""
        return True, True, True

    def _restore_newest(self) -> None:
        """Restores from the newest commit that the agent keeps for this process, if there is one."""
        self.restore()

    def _sync_to_base(self, *, fresh: bool) -> None:
        """Brings the state to the base of the round; ``fresh`` says that reset callbacks have made it of that."""
        # Behind the user's sync(), which may have been cut short: only now does this worker hold the base.
        _native.sync(self._head_and_buffers, self._load, fresh)

    def _enter_round(self) -> None:
        """Adapts the state to the members of the round, in which it is the same in all."""

    def _payload(self) -> Payload:
        """The state as bytes, which :meth:`_load` understands."""
        return _EMPTY

    def _load(self, head: bytes, buffers: Sequence[memoryview]) -> None:
        """Becomes what :meth:`_payload` gave. The buffers are valid only during the call."""

    def _commit(self) -> None:
        self._agree()
        self._keep()
        self._seal()
        self._committed()

    def _committed(self) -> None:
        """After a commit of this process."""

    def _agree(self) -> None:
        """Before a commit, in all workers: what they have to tell each other."""

    def _keep(self) -> None:
        """First part of a commit: what is kept in this process."""
        self.save()

    def _seal(self) -> None:
        """Second part of a commit: what is kept by the agent."""
        payload = self._payload()
        _native.seal(payload.head, payload.buffers)

    def _head_and_buffers(self) -> tuple[bytes, list[tuple[int, int]]]:
        # Kept: the native side reads the buffers after this has returned.
        payload = self._lent = self._payload()
        return payload.head, payload.buffers
