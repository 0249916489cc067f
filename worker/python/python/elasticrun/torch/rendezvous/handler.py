"""The rendezvous handler that ``torchrun --rdzv-backend=elasticrun`` uses."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import secrets
import socket
import weakref

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)

from elasticrun import _native

from .endpoint import open_endpoint
from .errors import with_errors_of_torch

_logger = logging.getLogger(__name__)

#: The name of the back end.
NAME = "elasticrun"

#: Options of --rdzv-conf that the machine of a node takes, with the meaning that they have for torch's c10d.
_SETTINGS = (
    "join_timeout",
    "last_call_timeout",
    "close_timeout",
    "heartbeat_timeout",
    "keep_alive_interval",
    "keep_alive_max_attempt",
    "cas_backoff_max_seconds",
)

#: Options that have another reader, or no meaning here: torchrun itself sets ``timeout``.
_OTHER_OPTIONS = (
    "is_host",
    "read_timeout",
    "timeout",
    "store_type",
    "use_libuv",
    "protocol",
    "ca_cert",
    "ssl_cert",
    "ssl_cert_key",
)

#: How long a process that ends tries to tell the others that its node leaves.
_LEAVE_TIMEOUT = 2.0

_numbers = itertools.count()


class ElasticrunRendezvousHandler(RendezvousHandler):
    """A node of a rendezvous.

    It follows the state over one connection, on a thread of its own: :meth:`num_nodes_waiting` and :meth:`is_closed` ask
    nobody. If the process ends without :meth:`shutdown`, as ``torchrun`` does after SIGTERM, the node leaves first, so the
    others go on at once.

    Args:
        params: the parameters of ``torchrun``; see :func:`create_handler`.
    """

    def __init__(self, params: RendezvousParameters) -> None:
        options = [(key, str(params.config[key])) for key in _SETTINGS if key in params.config]
        for key in params.config:
            if key not in _SETTINGS and key not in _OTHER_OPTIONS:
                _logger.warning("--rdzv-conf %s: no such option of the back end elasticrun", key)
        self._run_id = params.run_id
        self._close_timeout = float(params.get("close_timeout", 30))
        self._endpoint = open_endpoint(params)
        self._is_down = False
        self._closed = False
        self._worker_store: TCPStore | None = None
        self._rank: int | None = None
        try:
            # The first connection waits for the server or etcd. It ends at once.
            self._endpoint.connect(_run_name(self._run_id))
            self._address = params.local_addr or self._endpoint.own_address()
            self._node = _native.RendezvousNode(
                str(self._endpoint),
                _run_name(self._run_id),
                self._endpoint.node_id(_node_id(params.local_addr), self._address),
                (params.min_nodes, params.max_nodes),
                options,
                self._endpoint.tls,
            )
        except BaseException:
            self._endpoint.abandon()
            raise
        _leave_at_exit(self)

    def get_backend(self) -> str:
        """``elasticrun``."""
        return NAME

    @property
    def use_agent_store(self) -> bool:
        """Whether workers use a store that the agent of rank 0 serves, as with torch's c10d."""
        return os.getenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0") != "1"

    @with_errors_of_torch
    def next_rendezvous(self) -> RendezvousInfo:
        """Waits for the next round with this node.

        Raises:
            RendezvousClosedError: the rendezvous is closed.
            RendezvousConnectionError: the server has ended or cannot be reached.
            RendezvousStateError: nodes of different releases use one run id.
            RendezvousTimeoutError: too few nodes came within ``join_timeout``.
            SystemExit: the rendezvous closed while this node was redundant. The code is 0: torch's agent ends in order by it.
        """
        if self.is_closed():
            raise RendezvousClosedError(f"the rendezvous of run {self._run_id} is closed")
        round, rank, world_size = self._node.join(self._endpoint.read_timeout)
        while (first := self._node.first) is None:
            # It has left at once, so the round has no keys.
            round, rank, world_size = self._node.join(self._endpoint.read_timeout)
        self._rank = rank
        _logger.info("joined round %d of run %s as rank %d of %d", round, self._run_id, rank, world_size)
        keys = self._endpoint.keys(_run_name(self._run_id), first)
        store = PrefixStore(f"torch.rendezvous.{self._run_id}.{round}", keys)
        return RendezvousInfo(store, rank, world_size, self._bootstrap(rank, store))

    def is_closed(self) -> bool:
        """Whether no further round forms, as far as this node knows."""
        return self._closed if self._is_down else self._node.closed

    @with_errors_of_torch
    def set_closed(self) -> None:
        """Closes the rendezvous for all nodes."""
        self._node.close()

    def num_nodes_waiting(self) -> int:
        """The number of nodes that need this one to join again: those that wait, or at least 1 if one has left the round."""
        return self._node.nodes_waiting

    def get_run_id(self) -> str:
        """The run id."""
        return self._run_id

    def shutdown(self) -> bool:
        """Closes the rendezvous and leaves it. The node that serves it waits until the others have left.

        Returns:
            Whether the rendezvous is closed.
        """
        if self._is_down:
            return self._closed
        self._is_down = True
        try:
            self._close_and_exit()
            self._closed = True
        except RendezvousError as error:
            _logger.warning("the rendezvous of run %s is not closed: %s", self._run_id, error)
        finally:
            rank = self._rank if self._closed else None
            try:
                self._endpoint.release(self._node, _run_name(self._run_id), rank, self._close_timeout)
            finally:
                # Its thread is not in a process that is forked later, which would wait for it.
                self._worker_store = None
        return self._closed

    @with_errors_of_torch
    def _close_and_exit(self) -> None:
        if not self._node.closed:
            self._node.close()
        self._node.exit(self._close_timeout)

    def leave(self) -> None:
        """Leaves the rendezvous, which the others go on with. The server of this process, if any, ends."""
        if self._is_down:
            return
        self._is_down = True
        try:
            self._exit()
        except RendezvousError as error:
            _logger.debug("the other nodes of run %s are not told of the end of this one: %s", self._run_id, error)
        finally:
            self._node.stop()
            self._endpoint.abandon()
            self._worker_store = None

    @with_errors_of_torch
    def _exit(self) -> None:
        self._node.exit(_LEAVE_TIMEOUT)

    def _bootstrap(self, rank: int, store: Store) -> RendezvousStoreInfo:
        """The address at which the workers of this round meet: a store of the agent of rank 0, or a free port there."""
        self._worker_store = None
        if rank == 0:
            address = self._address
            # A new one for each round: no worker reads what one of an earlier round has written.
            self._worker_store = TCPStore(address, 0, is_master=True, wait_for_workers=False, multi_tenant=True)
            port = self._worker_store.port
            if not self.use_agent_store:
                self._worker_store = None
            store.set("MASTER_ADDR", address)
            store.set("MASTER_PORT", str(port))
        address = store.get("MASTER_ADDR").decode()
        return RendezvousStoreInfo(address, int(store.get("MASTER_PORT")))


def create_handler(params: RendezvousParameters) -> ElasticrunRendezvousHandler:
    """Creates the handler of a node.

    ``params.endpoint`` is ``HOST:PORT`` of the node that serves the rendezvous, by default port 29400, or
    ``etcd://HOST:PORT,HOST:PORT`` of the members of a cluster of etcd.

    Args:
        params: the parameters of ``torchrun``. The options of ``--rdzv-conf`` are those of c10d: ``join_timeout``,
            ``last_call_timeout``, ``close_timeout``, ``heartbeat_timeout``, ``keep_alive_interval``,
            ``keep_alive_max_attempt``, ``cas_backoff_max_seconds``, ``read_timeout`` and ``is_host``. Seconds may have a fraction.
            With etcd also ``protocol``, ``ca_cert``, ``ssl_cert`` and ``ssl_cert_key``, as for torch's own back end.

    Raises:
        RendezvousConnectionError: no server, or no etcd, answers within ``read_timeout`` seconds.
        ValueError: a parameter is not valid.
    """
    return ElasticrunRendezvousHandler(params)


def _run_name(run_id: str) -> str:
    """The name of a run at the server. The states of torch's own rules have other names."""
    return f"elasticrun/{run_id}"


def _node_id(local_addr: str | None) -> str:
    """An id that no other node has, and no later run of this program."""
    host = (local_addr or socket.gethostname())[:200]
    return f"{host}_{os.getpid()}_{next(_numbers)}_{secrets.token_hex(4)}"


def _leave_at_exit(handler: ElasticrunRendezvousHandler) -> None:
    """Lets the node leave when its process ends without a shutdown."""
    reference = weakref.ref(handler)
    process = os.getpid()

    def leave() -> None:
        alive = reference()
        # A forked child has the memory, but not the thread of the node.
        if alive is not None and os.getpid() == process:
            with contextlib.suppress(Exception):
                alive.leave()

    atexit.register(leave)
