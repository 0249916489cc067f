"""The place of this process in its job: ``init()``, ``rank()``, ``size()`` and their like.

``init()`` attaches the process to the agent of its host, or makes it a world of one worker if there is none
(a script run by hand). It joins no round: before the first one, the numbers are those that the process would
have. The first round is joined by :func:`elasticrun.elastic.run`, or by the first collective.

Nothing runs before ``init()``, so forking before it is safe. A child that is forked later (a loader of data,
say) can read the numbers as they were at the fork; all else there raises
:class:`~elasticrun.errors.ForkedError`.
"""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING

from . import _failure, _native
from .errors import ForkedError, NotInitialized

if TYPE_CHECKING:
    from ._native import Lane, Standing

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

#: The process that called ``init()``, if any.
_owner: int | None = None
#: Whether that process has joined a round. From then on only ``elastic.run`` joins further ones.
_joined = False
#: Seconds that a collective waits for other ranks; none is for ever.
_timeout: float | None = None
#: In a forked child: the world as it was at the fork.
_inherited: Standing | None = None


def init() -> None:
    """Attaches this process to its job. Calls after the first do nothing.

    Raises:
        ForkedError: in a child that was forked after ``init()``.
        ElasticrunError: the environment is not what an agent sets, or the agent refuses the process.
    """
    global _owner
    if _owner is not None:
        _require_owner("init")
        return
    _native.init()
    _owner = os.getpid()
    atexit.register(_at_exit)
    _failure.watch()


def shutdown() -> None:
    """Detaches this process from its job. Does nothing before ``init()`` and in a forked child.

    Called by itself when the interpreter ends.
    """
    global _owner, _joined
    if _owner != os.getpid():
        return
    _native.shutdown()
    _owner = None
    _joined = False
    atexit.unregister(_at_exit)


def is_initialized() -> bool:
    """Whether ``init()`` was called, here or in the process that this one was forked from."""
    return _owner is not None


def world() -> Standing:
    """All numbers of this process at once, with the round that they belong to.

    Raises:
        NotInitialized: before ``init()``.
    """
    return _world("world")


def rank() -> int:
    """Place of this worker, ``0 <= rank < size()``.

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
    """Slot of this worker on its host, which never changes: which device it uses.

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
    """Place of this host among the hosts that have this ``local_rank()``.

    Raises:
        NotInitialized: before ``init()``.
    """
    return _world("cross_rank").cross_rank


def cross_size() -> int:
    """How many hosts have this ``local_rank()``.

    Raises:
        NotInitialized: before ``init()``.
    """
    return _world("cross_size").cross_size


def lane(what: str) -> Lane:
    """The collectives of the current round, for ``what``. Joins the first round if that was not done.

    Raises:
        NotInitialized: before ``init()``.
        ForkedError: in a forked child.
        WorkersFailed: the round is over.
    """
    require(what)
    if not _joined:
        join()
    return _native.lane()


def join() -> Standing:
    """Leaves the round that is over, if there is one, and joins the next. Blocks until that begins."""
    global _joined
    standing = _native.join()
    _joined = True
    if _timeout is not None:
        _native.lane().set_timeout(_timeout)
    return standing


def set_collective_timeout(seconds: float | None) -> None:
    """Has collectives of this process fail that wait longer for other ranks, from now on and in all rounds.

    They raise :class:`~elasticrun.errors.CollectiveTimeout`, which names the ranks that are missing. Without a
    timeout, which is the default, they wait until all ranks are here or the round is over, and a warning names
    those that are late after each minute. Set a time that no rank needs for what it does between two collectives.

    Args:
        seconds: more than 0; none is for ever.

    Raises:
        ValueError: ``seconds`` is not more than 0.
    """
    global _timeout
    if seconds is not None and not seconds > 0:
        raise ValueError(f"set_collective_timeout({seconds}): must be more than 0 seconds, or None")
    _timeout = seconds
    if _joined:
        _native.lane().set_timeout(seconds)


def has_joined() -> bool:
    """Whether this process has joined a round, which may be over."""
    return _joined


def require(what: str) -> None:
    """Raises unless this process may call ``what``.

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


def _world(what: str) -> Standing:
    if _inherited is not None:
        return _inherited
    if _owner is None:
        raise NotInitialized(f"{what}() was called before init(): call elasticrun.init() first")
    return _native.world()


def _at_exit() -> None:
    if _owner == os.getpid():
        shutdown()


def _before_fork() -> None:
    global _inherited
    if _owner is not None and _inherited is None:
        _inherited = _native.world()


def _after_fork_in_parent() -> None:
    global _inherited
    if _owner == os.getpid():
        _inherited = None


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
