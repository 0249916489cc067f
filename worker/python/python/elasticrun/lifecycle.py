"""Lifecycle and ranks of this process: ``init()``, ``rank()``, ``size()`` and related functions.

``init()`` attaches the process to the agent of its host. Without an agent (a script run by hand) the process is the only
worker. ``init()`` does not join a round: until the first one, ranks and sizes are the expected ones. The first round is
joined by :func:`elasticrun.elastic.run` or by the first collective.

``shutdown()`` sets the round aside, and the process stays its member. After another ``init()``, the next collective or
``elastic.run`` returns to that round, or joins the next one if it is over meanwhile.

No thread runs before ``init()``, so a fork before it is safe. A child that is forked later (by a data loader, for example)
can read the ranks and sizes as of the fork. All other functions raise :class:`~elasticrun.errors.ForkedError` there.
"""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING

from . import _failure, _native
from .errors import ForkedError, NotInitialized, WorkersFailed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._native import CollectiveQueue, WorldInfo

__all__ = [
    "cross_rank",
    "cross_size",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "set_collective_timeout",
    "shutdown",
    "size",
    "world",
]

#: The process that called ``init()``, if any. None after ``shutdown()``.
_owner: int | None = None
#: The process whose collectives are closed at its exit: that of the first ``init()``.
_attached: int | None = None
#: Whether that process has joined a round, and has not called ``shutdown()`` since. From then on only ``elastic.run`` joins
#: further ones.
_joined = False
#: Whether ``elastic.run`` runs. Then only it joins rounds, also after ``shutdown()`` and ``init()``.
_trains = False
#: Seconds that a collective waits for other ranks; None waits without limit.
_timeout: float | None = None
#: In a forked child: ranks and sizes as of the fork.
_inherited: WorldInfo | None = None


def init(comm: Iterable[int] | None = None, process_sets: object = None) -> None:
    """Attaches this process to its job. Calls after the first do nothing, until ``shutdown()``.

    Args:
        comm: None, or all ranks in order. For scripts that pass Horovod's argument.
        process_sets: None, or a sequence of :data:`~elasticrun.process_sets.global_process_set` only. Likewise.

    Raises:
        ForkedError: in a child that was forked after ``init()``.
        NotImplementedError: ``comm`` or ``process_sets`` is about some of the ranks.
        ElasticrunError: the environment is not one that an agent sets, or the agent refuses the process.
    """
    global _owner, _attached
    if _owner is not None:
        _require_owner("init")
    else:
        _native.init()
    if comm is not None or process_sets is not None:
        _require_all_ranks(comm, process_sets)
    if _owner is not None:
        return
    _owner = os.getpid()
    if _attached != _owner:
        _attached = _owner
        atexit.register(_at_exit)
        _failure.watch()


def shutdown() -> None:
    """Detaches this process from its job. Does nothing before ``init()`` and in a forked child.

    The process stays a member of its round, and ``init()`` followed by a collective returns to it. Collectives of other
    ranks wait for that, or until this process exits.
    """
    global _owner, _joined
    if _owner != os.getpid():
        return
    _native.park()
    _owner = None
    _joined = False


def is_initialized() -> bool:
    """Whether ``init()`` was called, here or in the process that this one was forked from."""
    return _owner is not None


def is_in_job() -> bool:
    """Whether an agent has started this process."""
    return "ELASTICRUN_AGENT_SOCKET" in os.environ


def world() -> WorldInfo:
    """Ranks, sizes and round of this process as one consistent record.

    Raises:
        NotInitialized: before ``init()``.
    """
    return _world("world")


def rank() -> int:
    """Rank of this worker, ``0 <= rank < size()``.

    Raises:
        NotInitialized: before ``init()``.
    """
    return _world("rank").rank


def size() -> int:
    """Workers of the round.

    Raises:
        NotInitialized: before ``init()``.
    """
    return _world("size").size


def local_rank() -> int:
    """Slot of this worker on its host. It never changes, so use it to choose a device.

    Raises:
        NotInitialized: before ``init()``.
    """
    return _world("local_rank").local_rank


def local_size() -> int:
    """Workers of the round on this host.

    Raises:
        NotInitialized: before ``init()``.
    """
    return _world("local_size").local_size


def cross_rank() -> int:
    """Index of this host among the hosts that have this ``local_rank()``.

    Raises:
        NotInitialized: before ``init()``.
    """
    return _world("cross_rank").cross_rank


def cross_size() -> int:
    """Number of hosts that have this ``local_rank()``.

    Raises:
        NotInitialized: before ``init()``.
    """
    return _world("cross_size").cross_size


def collective_queue(what: str) -> CollectiveQueue:
    """The collective queue of the current round. Joins the first round if none was joined. Errors name ``what``.

    Raises:
        NotInitialized: before ``init()``.
        ForkedError: in a forked child.
        WorkersFailed: the round is over.
    """
    require(what)
    if not has_joined():
        if _trains:
            raise WorkersFailed(
                f"{what}: the round ended after shutdown(): let this error pass to elastic.run, which goes on in the next one"
            )
        join()
    return _native.collective_queue()


def join() -> WorldInfo:
    """Leaves the current round, if there is one, and joins the next. Blocks until the next round begins."""
    global _joined
    world_info = _native.join()
    _joined = True
    if _timeout is not None:
        _native.collective_queue().set_timeout(_timeout)
    return world_info


def set_collective_timeout(seconds: float | None) -> None:
    """Sets the maximum time that collectives of this process wait for other ranks, in this round and all later ones.

    A collective that waits longer raises :class:`~elasticrun.errors.CollectiveTimeout`, which names the missing ranks.
    Without a timeout, which is the default, collectives wait until all ranks have joined or the round is over. A warning
    each minute names the late ranks. Choose a time that is longer than any rank needs between two collectives.

    Args:
        seconds: more than 0. None waits without limit.

    Raises:
        ValueError: ``seconds`` is not more than 0.
    """
    global _timeout
    if seconds is not None and not seconds > 0:
        raise ValueError(f"set_collective_timeout({seconds}): must be more than 0 seconds, or None")
    _timeout = seconds
    if _joined:
        _native.collective_queue().set_timeout(seconds)


def trains(whether: bool) -> None:
    """Records whether :func:`elasticrun.elastic.run` runs."""
    global _trains
    _trains = whether


def has_joined() -> bool:
    """Whether this process has joined a round. That round may be over.

    After ``shutdown()`` and ``init()``, returns to the round from before, unless it is over.
    """
    global _joined
    if not _joined and _owner == os.getpid() and _native.resume() is not None:
        _joined = True
        _native.collective_queue().set_timeout(_timeout)
    return _joined


def require(what: str) -> None:
    """Checks that this process may call ``what``.

    Raises:
        NotInitialized: before ``init()``.
        ForkedError: in a forked child.
    """
    if _owner is None:
        raise NotInitialized(f"{what}() was called before init(): call elasticrun.init() first")
    _require_owner(what)


def _require_owner(what: str) -> None:
    if os.getpid() != _owner:
        raise ForkedError(
            f"{what}() was called in a forked child of the worker (process {_owner}): call it in the worker"
            " itself, or start the child before init()"
        )


def _world(what: str) -> WorldInfo:
    if _inherited is not None:
        return _inherited
    if _owner is None:
        raise NotInitialized(f"{what}() was called before init(): call elasticrun.init() first")
    return _native.world()


def _require_all_ranks(comm: Iterable[int] | None, process_sets: object) -> None:
    """Checks the arguments of Horovod's ``init``.

    Raises:
        NotImplementedError: ``comm`` is neither None nor all ranks in order, or ``process_sets`` has another set than the
            global one.
    """
    size = _native.world().size
    if comm is not None and not (isinstance(comm, (list, tuple, range)) and list(comm) == list(range(size))):
        raise NotImplementedError(f"init(comm={comm!r}): only all {size} ranks are a job: leave comm out")
    sets = process_sets if isinstance(process_sets, (list, tuple)) else [process_sets]
    # The set of all ranks is the only one that exists. Its class imports this module.
    if any(getattr(one, "process_set_id", None) != 0 for one in sets if one is not None):
        raise NotImplementedError("process sets are not offered: leave process_sets out (all ranks take part)")


def _at_exit() -> None:
    if _attached == os.getpid():
        _native.shutdown()


def _before_fork() -> None:
    global _inherited
    if _owner is not None and _inherited is None:
        _inherited = _native.world()


def _after_fork_in_parent() -> None:
    global _inherited
    if _owner == os.getpid():
        _inherited = None


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
