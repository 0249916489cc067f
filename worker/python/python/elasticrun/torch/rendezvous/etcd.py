"""A rendezvous whose state is in etcd: no node serves it, and any node may be lost."""

from __future__ import annotations

import logging
import socket
from datetime import timedelta

from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters

from elasticrun import _native, errors

from .addresses import own_address
from .store import RendezvousStore

_logger = logging.getLogger(__name__)

#: What an endpoint in etcd begins with.
SCHEME = "etcd://"

#: How long a node looks for etcd: the option ``read_timeout``.
_READ_TIMEOUT = 60


class EtcdEndpoint:
    """A cluster of etcd in which the nodes of a run meet.

    The keys of a round are with the node of rank 0: each node serves keys at an address that is a part of its id.

    Args:
        params: the parameters of ``torchrun``. ``protocol=https`` reaches etcd by TLS, with the files of ``ca_cert``,
            ``ssl_cert`` and ``ssl_cert_key``.

    Raises:
        ValueError: the endpoint or an option is not valid.
    """

    def __init__(self, params: RendezvousParameters) -> None:
        if not params.run_id:
            raise ValueError("the run id must be a non-empty string")
        self.run_id = params.run_id
        self.read_timeout = params.get_as_int("read_timeout", _READ_TIMEOUT) or 0
        if self.read_timeout <= 0:
            raise ValueError("read_timeout must be a positive integer")
        self.tls = _tls(params)
        self._text = params.endpoint
        self._members = _native.rendezvous_etcd_members(params.endpoint)
        self._server: _native.RendezvousServer | None = None

    def __str__(self) -> str:
        return self._text

    def connect(self, run: str) -> _native.RendezvousHolder:
        """Waits for etcd, and connects to the state of a run."""
        try:
            return _native.RendezvousHolder(str(self), run, self.read_timeout, self.tls)
        except errors.RendezvousUnreachable as error:
            raise RendezvousConnectionError(str(error)) from None

    def own_address(self) -> str:
        """An address of this machine that other nodes reach, as far as it can tell."""
        address = self._address_on_the_way()
        if not _native.rendezvous_is_loopback(address):
            return address
        # The other nodes have etcd on loopback as well, or they are on this machine.
        name = socket.gethostname()
        return name if _native.rendezvous_is_local(name) else address

    def _address_on_the_way(self) -> str:
        problem: OSError | None = None
        for host, port in self._members:
            try:
                return own_address(host, port)
            except OSError as error:
                problem = error
        raise RendezvousConnectionError(f"no address of this host on the way to {self}: {problem}; give --local-addr")

    def node_id(self, node: str, address: str) -> str:
        """Serves keys at ``address``, and adds where to the id of a node."""
        host = f"[{address}]" if ":" in address else address
        self._server = _native.RendezvousServer(f"{host}:0")
        return f"{node}@{host}:{self._server.port}"

    def keys(self, run: str, first: str) -> RendezvousStore:
        """The keys of a round, which the node of rank 0 serves."""
        _, _, address = first.rpartition("@")
        return RendezvousStore(address, run, timedelta(seconds=self.read_timeout))

    def release(self, node: _native.RendezvousNode, run: str, rank: int | None, timeout: float) -> None:
        """Stops the node and its keys. The node of rank 0 waits until the others have left, at most ``timeout`` seconds."""
        try:
            if rank == 0 and not node.wait_for_leave(timeout):
                _logger.warning("nodes of run %s have not left %s: this one ends without them", self.run_id, self)
        finally:
            node.stop()
            self.abandon()

    def abandon(self) -> None:
        """Stops the keys of this node."""
        if self._server is not None:
            self._server.stop()
            self._server = None


def _tls(params: RendezvousParameters) -> tuple[str | None, tuple[str, str] | None] | None:
    protocol = params.get("protocol", "http")
    if protocol not in ("http", "https"):
        raise ValueError(f"protocol must be http or https, not {protocol!r}")
    authority, chain, key = (params.get(option) for option in ("ca_cert", "ssl_cert", "ssl_cert_key"))
    if protocol == "http":
        if authority or chain or key:
            raise ValueError("ca_cert, ssl_cert and ssl_cert_key need protocol=https")
        return None
    if bool(chain) != bool(key):
        raise ValueError("ssl_cert and ssl_cert_key need each other")
    return authority, (chain, key) if chain and key else None
