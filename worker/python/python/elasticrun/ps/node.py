"""A node of the parameter server."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Mapping
from types import TracebackType

from .._native import PsNode
from ..errors import ForkedError, PsError

__all__ = [
    "ALL_NODES",
    "SCHEDULER",
    "SCHEDULER_GROUP",
    "SERVER_GROUP",
    "WORKER_GROUP",
    "Postoffice",
    "current",
    "server_id",
    "start",
    "worker_id",
]

#: The id of the scheduler.
SCHEDULER = 1
#: Groups of nodes. A sum of them is a group too.
SCHEDULER_GROUP = 1
SERVER_GROUP = 2
WORKER_GROUP = 4
ALL_NODES = 7


def server_id(rank: int) -> int:
    """The id of the server with this rank: 8, 10, 12 and so on."""
    return 8 + 2 * rank


def worker_id(rank: int) -> int:
    """The id of the worker with this rank: 9, 11, 13 and so on."""
    return 9 + 2 * rank


class Postoffice:
    """A node: scheduler, server or worker. :func:`start` makes it.

    In a ``with`` statement it is finalized at the end: with a barrier of all nodes, or without one after an exception.
    """

    def __init__(self, native: PsNode) -> None:
        self._native = native
        self._ended = False
        if not _nodes:
            atexit.unregister(_end_all)
            atexit.register(_end_all)
        _nodes.append(self)

    def __repr__(self) -> str:
        return f"<elasticrun.ps.Postoffice {self.role} {self.rank}>"

    def __enter__(self) -> Postoffice:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._ended:
            # `sys.exit()` and `sys.exit(0)` are good ends.
            is_good = kind is None or (isinstance(error, SystemExit) and error.code in (None, 0))
            self.finalize(barrier=is_good)

    @property
    def native(self) -> PsNode:
        """The node as the native module knows it."""
        return self._native

    @property
    def id(self) -> int:
        """The id: 1 for the scheduler, 8 + 2 rank for a server, 9 + 2 rank for a worker."""
        return self._native.id

    @property
    def rank(self) -> int:
        """The rank among the nodes of the same role, from 0."""
        return self._native.rank

    @property
    def role(self) -> str:
        """``"scheduler"``, ``"server"`` or ``"worker"``."""
        return self._native.role

    @property
    def num_servers(self) -> int:
        """Number of servers of the job."""
        return self._native.num_servers

    @property
    def num_workers(self) -> int:
        """Number of workers of the job."""
        return self._native.num_workers

    @property
    def is_recovery(self) -> bool:
        """Whether this process has taken the place of a dead one, under its id (``ELASTICRUN_PS_REPLACE_TIMEOUT``)."""
        return self._native.is_recovery

    def node_ids(self, group: int) -> list[int]:
        """The ids of the nodes of ``group``, ascending.

        Raises:
            ValueError: it is no group.
        """
        return self._native.node_ids(group)

    def dead_nodes(self) -> list[int]:
        """The ids of the nodes that this one knows to be dead: a connection ended without a goodbye, or heartbeats stopped."""
        return self._native.dead_nodes()

    def barrier(self, group: int = ALL_NODES) -> None:
        """Waits until all nodes of ``group`` are here, at most for the request timeout.

        Raises:
            PsTimeout: they are not.
            PsNodeLost: a node of the group is dead.
            ValueError: it is no group.
        """
        self._native.barrier(group)

    def snapshot(self) -> int:
        """Saves the values of all servers in ``ELASTICRUN_PS_SNAPSHOTS``, and waits until they are saved.

        Other workers may push meanwhile. The snapshot has all pushes that were acknowledged before the call, none that begin
        after it, and of others some. The next job of the same place begins with its newest snapshot.

        Returns:
            The number of the snapshot.

        Raises:
            PsError: the values cannot be written, the job takes no snapshots, or this is no worker of an elastic job.
            PsNodeLost: the scheduler is lost.
        """
        return self._native.snapshot()

    def on_exit(self, callback: Callable[[], object]) -> None:
        """Has ``callback()`` called at the end of :meth:`finalize`, on another thread. A second one replaces it."""
        self._native.on_exit(callback)

    def finalize(self, *, barrier: bool = True) -> None:
        """Ends the node.

        Args:
            barrier: wait for all nodes first. There is no limit in time, since servers wait here for as long as the job takes.
                Without it, requests of others to this node fail from now on. With ``ELASTICRUN_PS_SNAPSHOTS``, workers also wait
                until the values are saved.

        Raises:
            PsNodeLost: a node is dead. This one ends all the same.
        """
        self._ended = True
        if self in _nodes:
            _nodes.remove(self)
        self._native.finalize(barrier)


#: The nodes of this process that are not finalized.
_nodes: list[Postoffice] = []


def start(variables: Mapping[str, str] | None = None, *, barrier: bool = True) -> Postoffice:
    """Starts the node of this process, and waits until all nodes of the job are there, at most for the start timeout.

    A job has one node in each process. Tests may start several in one, each on a thread; :class:`KvWorker` and the others
    then need to be told which.

    Args:
        variables: used in place of the environment.
        barrier: whether all nodes meet in a barrier. Without it, this returns once all have registered.

    Raises:
        PsConfigError: a variable is missing or wrong.
        PsStartError: not all nodes come in time, or the scheduler cannot be reached or cannot listen.
        PsNodeLost: a node died meanwhile.
    """
    found = os.environ if variables is None else variables
    return Postoffice(PsNode(dict(found), barrier))


def current(given: Postoffice | None) -> Postoffice:
    """The given node, or that which this process started last.

    Raises:
        PsError: it has started none.
    """
    node = given or (_nodes[-1] if _nodes else None)
    if node is None:
        raise PsError("this process has no node of the parameter server: call elasticrun.ps.start() first")
    return node


def _end_all() -> None:
    """Ends the nodes that a program has not finalized, while the interpreter still runs."""
    for node in list(_nodes):
        # A forked child has no node to end.
        with contextlib.suppress(ForkedError):
            node.finalize(barrier=False)
