"""Creates a gloo group on a separate thread, and ends it with its round.

gloo connects the members while a group is created. The creation cannot be interrupted, neither for a dead peer nor for the end of
the round. Members therefore first rendezvous in the store. Only a member that dies after the rendezvous can delay the creation,
and then only callers of :meth:`SubgroupRendezvous.group` wait.
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
from .failures import classify
from .message import Message
from .store import round_store

#: Timeout of the connections, once all members have reached the rendezvous.
_CONNECTED_WITHIN = timedelta(seconds=60)


class SubgroupRendezvous:
    """The rendezvous of ``size`` members of a gloo group. An abort of the round ends it before or after the group exists.

    Args:
        store: store of the members for the rendezvous. Each rendezvous of a round needs a different one.
        rank: rank of this process in the group.
        size: number of members.
        timeout: maximum wait for the others, and default maximum wait of the group's operations.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        world = _native.world()
        self._round = world.round
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._group: Any = None
        self._error: Exception | None = None
        self._queued: list[Message] = []
        # Connections of groups that connect through the store of the round are broken with the round.
        round_keys = round_store(world, "meetings")
        abort.watch(self, self._round)
        threading.Thread(
            target=self._run,
            args=(store, round_keys, rank, size, timeout),
            name="elasticrun rendezvous",
            daemon=True,
        ).start()

    def group(self) -> Any:
        """The group, a :class:`.gloo.GlooGroup`. Waits until it exists.

        Raises:
            WorkersFailed: the round is over.
            DistStoreError: a member did not reach the rendezvous in time.
        """
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._group

    def post(self, message: Message) -> None:
        """Starts ``message`` in the group as soon as the group exists. Messages start in the order of the calls."""
        with self._lock:
            if not self._done.is_set():
                self._queued.append(message)
            else:
                self._begin(message)

    def abort(self) -> None:
        """Ends the rendezvous with the round. :mod:`.abort` breaks the connections of a group that exists."""
        self._end(None, errors.WorkersFailed(f"round {self._round} was aborted"))

    def _run(self, store: Store, round_keys: Store, rank: int, size: int, timeout: timedelta) -> None:
        try:
            group = _connect(store, round_keys, rank, size, timeout)
        except Exception as error:
            self._end(None, classify(error))
        else:
            self._end(group, None)

    def _end(self, group: Any, error: Exception | None) -> None:
        with self._lock:
            if self._done.is_set():
                return
            self._group, self._error = group, error
            for message in self._queued:
                self._begin(message)
            self._queued.clear()
            self._done.set()

    def _begin(self, message: Message) -> None:
        if self._error is not None:
            message.fail(self._error)
        else:
            message.begin(self._group)


def _connect(store: Store, round_keys: Store, rank: int, size: int, timeout: timedelta) -> Any:
    # A unique name, so that no member finds the keys of an earlier group in the same store.
    if rank == 0:
        name = uuid.uuid4().hex
        store.set("place", name)
    else:
        store.wait(["place"], timeout)
        name = store.get("place").decode()
    members = PrefixStore(name, round_keys)
    members.set(f"here/{rank}", "")
    members.wait([f"here/{member}" for member in range(size)], timeout)
    group = dist.ProcessGroupGloo(PrefixStore("gloo", members), rank, size, _CONNECTED_WITHIN)
    group._set_default_timeout(timeout)
    return gloo.wrap(group)
