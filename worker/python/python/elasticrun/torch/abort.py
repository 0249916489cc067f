"""Ends the operations of torch's own groups (NCCL, gloo) the moment the round is aborted.

A collective of NCCL waits for a peer that is dead until its timeout, minutes later, and one of gloo for ever for a
peer that has gone on. So a thread that hears of the abort from the agent aborts at once all groups that
torch.distributed knows, whoever made them, and those that are registered here, and breaks gloo's connections.
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
    """A group whose blocked operations ``abort`` ends, from any thread."""

    def abort(self) -> None: ...


_lock = threading.Lock()
_watched: dict[int, weakref.WeakSet[Abortable]] = {}
_aborted: set[int] = set()
_heard = threading.Condition(_lock)
_listening = False


def watch(group: Abortable, round: int) -> None:
    """Has ``group`` aborted as soon as ``round`` is; at once if it is already."""
    _listen()
    with _lock:
        late = round in _aborted
        if not late:
            _watched.setdefault(round, weakref.WeakSet()).add(group)
    if late:
        _end(group)


def listen() -> None:
    """Hears of aborts from now on."""
    _listen()


def aborted(round: int, patience: float = 0.0) -> bool:
    """Whether ``round`` is aborted, or is within ``patience`` seconds."""
    with _heard:
        return _heard.wait_for(lambda: round in _aborted, patience)


def forget(round: int) -> None:
    """The process has left ``round``: its groups are its own affair."""
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
    with _heard:
        _aborted.add(round)
        groups: list[Abortable] = list(_watched.pop(round, ()))
        _heard.notify_all()
    if dist.is_initialized() and _native.world().round == round:
        # That of our own back end has nothing to do there.
        groups += [group for group in list(dist.distributed_c10d._world.pg_map) if group not in groups]
    if not all(isinstance(group, Group) for group in groups):
        # What torch's own groups do on a stream ends here without a word to who began it: no commit may hold it.
        _native.refuse_commits(round)
    # First: groups of gloo wait for it.
    connections.hang_up(round)
    for group in groups:
        _end(group)


def _end(group: Abortable) -> None:
    try:
        group.abort()
    except Exception:
        _log.warning("a process group of the round could not be aborted", exc_info=True)
