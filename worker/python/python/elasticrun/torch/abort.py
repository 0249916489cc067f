"""Aborts the operations of torch's own groups (NCCL, gloo) as soon as the round is aborted.

A NCCL collective waits for a dead peer until its timeout of minutes. A gloo collective waits forever for a live peer that has
left the round. When the agent reports the abort, a callback thread therefore aborts all groups of torch.distributed and all
groups that are registered here, and breaks gloo's connections.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Protocol

import torch.distributed as dist

from elasticrun import _abort, _native

from . import connections
from .group import Group

_log = logging.getLogger("elasticrun.torch")


class Abortable(Protocol):
    """A group whose ``abort`` ends blocked operations, from any thread."""

    def abort(self) -> None: ...


_lock = threading.Lock()
_watched: dict[int, weakref.WeakSet[Abortable]] = {}
_aborted: set[int] = set()
_abort_reported = threading.Condition(_lock)
_listening = False


def watch(group: Abortable, round: int) -> None:
    """Aborts ``group`` as soon as ``round`` is aborted, immediately if it already is."""
    _listen()
    with _lock:
        late = round in _aborted
        if not late:
            _watched.setdefault(round, weakref.WeakSet()).add(group)
    if late:
        _abort_group(group)


def listen() -> None:
    """Subscribes to aborts."""
    _listen()


def aborted(round: int, timeout: float = 0.0) -> bool:
    """Whether ``round`` is aborted, or will be within ``timeout`` seconds."""
    with _abort_reported:
        return _abort_reported.wait_for(lambda: round in _aborted, timeout)


def forget(round: int) -> None:
    """Stops watching the groups of ``round``, which the process has left."""
    with _lock:
        _watched.pop(round, None)
        _aborted.discard(round)


def _listen() -> None:
    global _listening
    with _lock:
        if _listening:
            return
        _listening = True
    _abort.watch(_round_aborted)


def _round_aborted(round: int) -> None:
    with _abort_reported:
        _aborted.add(round)
        groups: list[Abortable] = list(_watched.pop(round, ()))
        _abort_reported.notify_all()
    if dist.is_initialized() and _native.world().round == round:
        # The abort of a group of the elasticrun back end does nothing.
        groups += [group for group in list(dist.distributed_c10d._world.pg_map) if group not in groups]
    if not all(isinstance(group, Group) for group in groups):
        # Aborted operations of torch's own groups may end without an error in the caller, so no commit may contain their results.
        _native.refuse_commits(round)
    # Before the groups: the abort of a gloo group waits for closed connections.
    connections.break_connections(round)
    for group in groups:
        _abort_group(group)


def _abort_group(group: Abortable) -> None:
    try:
        group.abort()
    except Exception:
        _log.warning("a process group of the round could not be aborted", exc_info=True)
