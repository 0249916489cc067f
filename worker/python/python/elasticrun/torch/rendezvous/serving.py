"""The server of an endpoint, in the process of the node whose address the endpoint is."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
from dataclasses import dataclass
from datetime import timedelta

from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters

from elasticrun import _native, errors

from .addresses import own_address
from .store import RendezvousStore

_logger = logging.getLogger(__name__)

#: How long a node looks for the server, as torch's does: the option ``read_timeout``.
_READ_TIMEOUT = 60


@dataclass
class _Served:
    """A server of this process, and how many of its handlers and back ends use it."""

    server: _native.RendezvousServer
    users: int = 0


_lock = threading.Lock()
_served: dict[int, _Served] = {}


class ServerEndpoint:
    """The endpoint of a rendezvous, which this process serves if it can.

    Args:
        params: the parameters of ``torchrun``. ``is_host`` decides whether this process serves; without it, the process
            serves if the host is this machine and the port is free.

    Raises:
        RendezvousConnectionError: no server answers within ``read_timeout`` seconds, or the port is in use although
            ``is_host`` is true.
        ValueError: the endpoint or an option is not valid.
    """

    def __init__(self, params: RendezvousParameters) -> None:
        if not params.run_id:
            raise ValueError("the run id must be a non-empty string")
        self.run_id = params.run_id
        self.read_timeout = params.get_as_int("read_timeout", _READ_TIMEOUT) or 0
        if self.read_timeout <= 0:
            raise ValueError("read_timeout must be a positive integer")
        self.host, self.port = _native.rendezvous_endpoint(params.endpoint)
        self.is_local = _native.rendezvous_is_local(params.endpoint)
        is_host = params.get_as_bool("is_host")
        self._serves = False
        self._keys: RendezvousStore | None = None
        if is_host or (is_host is None and self.is_local):
            self._serve(required=bool(is_host))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    #: A server of nodes is reached without TLS.
    tls = None

    def connect(self, run: str) -> _native.RendezvousHolder:
        """Waits for the server, and connects to the state of a run."""
        try:
            return _native.RendezvousHolder(str(self), run, self.read_timeout)
        except errors.RendezvousUnreachable as error:
            raise RendezvousConnectionError(str(error)) from None

    def own_address(self) -> str:
        """An address of this machine that other nodes reach."""
        if self.is_local:
            return self.host
        return own_address(self.host, self.port)

    def node_id(self, node: str, address: str) -> str:
        """The id of a node: the keys of all rounds are with the server."""
        return node

    def keys(self, run: str, first: str | None) -> RendezvousStore:
        """The keys of a run."""
        if self._keys is None:
            self._keys = RendezvousStore(str(self), run, timedelta(seconds=self.read_timeout))
        return self._keys

    def release(self, node: _native.RendezvousNode, run: str, rank: int | None, timeout: float) -> None:
        """Stops the node. Ends the server, if it is of this process and nothing else in it uses it, once other nodes have left.

        Those of ``run`` have learnt that it is closed, and get ``timeout`` seconds. Those of other runs need the server as long
        as they run.
        """
        node.stop()
        server = self._last_user()
        if server is None:
            return
        try:
            if not server.wait_for_leave(run, timeout):
                _logger.warning(
                    "nodes of run %s are still connected: the rendezvous at %s ends without them", self.run_id, self
                )
            others = server.nodes() - server.nodes(run)
            if others > 0:
                print(
                    f"elasticrun: still serving the rendezvous of {others} nodes of other runs at {self}",
                    file=sys.stderr,
                )
            while server.nodes() > server.nodes(run):
                server.wait_for_leave(None, 1.0)
        finally:
            server.stop()

    def abandon(self) -> None:
        """Ends the server at once, if it is of this process and nothing else in it uses it."""
        server = self._last_user()
        if server is not None:
            server.stop()

    def _serve(self, required: bool) -> None:
        with _lock:
            served = _served.get(self.port) if self.port else None
            if served is None:
                try:
                    server = _native.RendezvousServer(str(self))
                except errors.RendezvousUnreachable as error:
                    if required:
                        raise RendezvousConnectionError(str(error)) from None
                    _logger.debug("another process serves: %s", error)
                    return
                self.port = server.port
                served = _served[self.port] = _Served(server)
                if not _native.rendezvous_is_loopback(str(self)):
                    print(
                        f"elasticrun: any program that reaches {self} can join and change this rendezvous, as with c10d",
                        file=sys.stderr,
                    )
                _logger.info("process %d serves the rendezvous at %s", os.getpid(), self)
            served.users += 1
            self._serves = True

    def _last_user(self) -> _native.RendezvousServer | None:
        """The server, if this was its last user."""
        with _lock:
            if not self._serves:
                return None
            self._serves = False
            served = _served[self.port]
            served.users -= 1
            if served.users > 0:
                return None
            del _served[self.port]
            return served.server


def _forget_servers() -> None:
    """A forked child has no servers."""
    _served.clear()


os.register_at_fork(after_in_child=_forget_servers)


@atexit.register
def _stop_servers() -> None:
    for served in list(_served.values()):
        with contextlib.suppress(errors.ElasticrunError):
            served.server.stop()
    _served.clear()
