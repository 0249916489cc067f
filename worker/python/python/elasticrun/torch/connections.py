"""Finds the connections of gloo's groups by their addresses, and breaks them when the round is over.

gloo's groups have no abort, and they live as long as any reference to them (a DistributedDataParallel in a traceback is
enough). A member would therefore wait forever for a live peer that has left for the next round. Broken connections end such an
operation immediately. :mod:`.gloo` ends the operations that gloo loses.

Each member publishes its listening address in the store in which the group connects, which is elasticrun's store, and reads
those of the others. A connection of a group therefore has a published address at one of its ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections.abc import Iterator

#: Maximum length of a store value to search. Values of gloo contain one address and a host name.
_MAX_VALUE = 1024
#: The beginning of the kernel's address structures: IPv4 (zero-padded) and IPv6 (flow 0).
_ADDRESS = re.compile(rb"\x02\0.{6}\0{8}|\x0a\0..\0{4}.{16}", re.DOTALL)

_lock = threading.Lock()
#: Listening addresses of the groups of each round, on all ranks.
_addresses: dict[int, set[bytes]] = {}


def record_addresses(round: int, value: bytes) -> None:
    """Records the addresses in a value that was written to or read from the store of ``round``."""
    if len(value) <= _MAX_VALUE:
        found = _ADDRESS.findall(value)
        if found:
            with _lock:
                _addresses.setdefault(round, set()).update(found)


def open_connections(round: int) -> frozenset[str]:
    """The open connections of groups of ``round`` in this process, by their kernel names."""
    return frozenset(name for name, _ in _connections(round))


def are_closed(names: frozenset[str]) -> bool:
    """Whether this process has closed all of ``names``, which :func:`open_connections` returned."""
    return names.isdisjoint(name for name, _ in _sockets())


def break_connections(round: int) -> None:
    """Shuts down the connections of groups of ``round``. Operations on them end with an error."""
    for _, connection in _connections(round):
        # A peer may have closed it already.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def forget(round: int) -> None:
    """Drops the addresses of ``round``, whose groups are no longer used in this process."""
    with _lock:
        _addresses.pop(round, None)


def _connections(round: int) -> Iterator[tuple[str, socket.socket]]:
    """Name and socket of each connection. A socket is valid until the next iteration."""
    with _lock:
        known = set(_addresses.get(round, ()))
    if not known:
        return
    for name, entry in _sockets():
        # Other threads may close sockets meanwhile, and a listener has no peer.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(entry))) as connection:
            if connection.type == socket.SOCK_STREAM and not known.isdisjoint(
                _raw(connection.family, address) for address in (connection.getpeername(), connection.getsockname())
            ):
                yield name, connection


def _sockets() -> Iterator[tuple[str, str]]:
    """The kernel's name of each socket of this process, and its descriptor."""
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{entry}")
            if name.startswith("socket:"):
                yield name, entry


def _raw(family: int, address: tuple[str | int, ...]) -> bytes:
    """``address`` in the form that :data:`_ADDRESS` matches; empty for families other than IPv4 and IPv6."""
    if family not in (socket.AF_INET, socket.AF_INET6):
        return b""
    host, port = str(address[0]), int(address[1])
    head = int(family).to_bytes(2, "little") + port.to_bytes(2, "big")
    raw = socket.inet_pton(family, host.partition("%")[0])
    return head + raw + bytes(8) if family == socket.AF_INET else head + bytes(4) + raw
