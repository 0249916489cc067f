"""A group of gloo, made on a thread of its own, and ended with its round.

gloo connects its members while a group is made, and has nobody look up meanwhile: not for a peer that is dead, nor
for a round that is over. So the members first come together in the store, and only those who wait here can be
held up by one that dies between that and the last connection.
"""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from elasticrun import _native, errors

from . import abort, gloo
from .failures import judge
from .message import Message
from .store import round_store

#: Longest time in which members who are all there connect.
_CONNECTED_WITHIN = timedelta(seconds=60)


class Meeting:
    """A place where ``size`` members become a group of gloo. The round's abort ends it, made or not.

    Args:
        store: the members', for their first words; no two meetings may have the same in a round.
        rank: this process's place.
        size: how many come.
        timeout: longest wait for the others, and for operations of the group that say no other.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        world = _native.world()
        self._round = world.round
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._group: Any = None
        self._error: Exception | None = None
        self._early: list[Message] = []
        # The connections of groups that meet in the round's own store are broken with the round.
        place = round_store(world, "meetings")
        abort.watch(self, self._round)
        threading.Thread(
            target=self._hold,
            args=(store, place, rank, size, timeout),
            name="elasticrun meeting",
            daemon=True,
        ).start()

    def group(self) -> Any:
        """The group, a :class:`.gloo.Gloo`; waits for it.

        Raises:
            WorkersFailed: the round is over.
            DistStoreError: a member did not come in time.
        """
        self._over.wait()
        if self._error is not None:
            raise self._error
        return self._group

    def post(self, message: Message) -> None:
        """Starts ``message`` in the group as soon as there is one. Messages start in the order of the calls."""
        with self._lock:
            if not self._over.is_set():
                self._early.append(message)
            else:
                self._begin(message)

    def abort(self) -> None:
        """The round is over; if the group is made, its connections are broken elsewhere."""
        self._end(None, errors.WorkersFailed(f"round {self._round} was aborted"))

    def _hold(self, store: Store, place: Store, rank: int, size: int, timeout: timedelta) -> None:
        try:
            group = _connect(store, place, rank, size, timeout)
        except Exception as error:
            self._end(None, judge(error))
        else:
            self._end(group, None)

    def _end(self, group: Any, error: Exception | None) -> None:
        with self._lock:
            if self._over.is_set():
                return
            self._group, self._error = group, error
            for message in self._early:
                self._begin(message)
            self._early.clear()
            self._over.set()

    def _begin(self, message: Message) -> None:
        if self._error is not None:
            message.fail(self._error)
        else:
            message.begin(self._group)


def _connect(store: Store, place: Store, rank: int, size: int, timeout: timedelta) -> Any:
    # A place of its own: nobody finds the keys of a group that met by the same name before.
    if rank == 0:
        name = uuid.uuid4().hex
        store.set("place", name)
    else:
        store.wait(["place"], timeout)
        name = store.get("place").decode()
    here = PrefixStore(name, place)
    here.set(f"here/{rank}", "")
    here.wait([f"here/{member}" for member in range(size)], timeout)
    group = dist.ProcessGroupGloo(PrefixStore("gloo", here), rank, size, _CONNECTED_WITHIN)
    group._set_default_timeout(timeout)
    return gloo.guarded(group)
