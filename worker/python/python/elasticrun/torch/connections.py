"""The connections of gloo: known by the addresses at which its groups meet, broken when their round is over.

gloo's groups have no abort, and their memory lives as long as anything refers to them (a
DistributedDataParallel in a traceback is enough). A member that waits for one that is alive and has left for the
next round would therefore wait for ever. Broken connections end such an operation at once; :mod:`.gloo` ends those
that gloo forgets.

Each member leaves the address at which it listens in the store in which the group meets, which is ours, and reads
those of the others. So a connection of a group has such an address at one of its ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections.abc import Iterator

#: Longest value in a store that is looked at. gloo's hold one address and the name of a host.
_LONGEST = 1024
#: How the kernel's structures for an address of IPv4 (padded by zeros) and of IPv6 (of no flow) begin.
_ADDRESS = re.compile(rb"\x02\0.{6}\0{8}|\x0a\0..\0{4}.{16}", re.DOTALL)

_lock = threading.Lock()
#: Addresses at which groups of a round listen, here and elsewhere, by round.
_addresses: dict[int, set[bytes]] = {}


def met(round: int, value: bytes) -> None:
    """Sees what is set in the store of ``round``, or read there: the addresses in it are those of groups."""
    if len(value) <= _LONGEST:
        found = _ADDRESS.findall(value)
        if found:
            with _lock:
                _addresses.setdefault(round, set()).update(found)


def ends(round: int) -> frozenset[str]:
    """The connections of groups of ``round`` in this process that are open, by the names that the kernel gives them."""
    return frozenset(name for name, _ in _connections(round))


def are_closed(names: frozenset[str]) -> bool:
    """Whether this process has closed all of ``names``, as given by :func:`ends`."""
    return names.isdisjoint(name for name, _ in _links())


def hang_up(round: int) -> None:
    """Shuts the connections of groups of ``round``. Operations on them end with an error."""
    for _, end in _connections(round):
        # A peer was quicker.
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def forget(round: int) -> None:
    """Nobody in this process uses groups of ``round`` any more."""
    with _lock:
        _addresses.pop(round, None)


def _connections(round: int) -> Iterator[tuple[str, socket.socket]]:
    """Name and socket of each connection; a socket is valid until the next is asked for."""
    with _lock:
        known = set(_addresses.get(round, ()))
    if not known:
        return
    for name, entry in _links():
        # Others may close theirs meanwhile; a listener has no peer.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(entry))) as end:
            if end.type == socket.SOCK_STREAM and not known.isdisjoint(
                _raw(end.family, address) for address in (end.getpeername(), end.getsockname())
            ):
                yield name, end


def _links() -> Iterator[tuple[str, str]]:
    """The kernel's name of each socket of this process, and its descriptor."""
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{entry}")
            if name.startswith("socket:"):
                yield name, entry


def _raw(family: int, address: tuple[str | int, ...]) -> bytes:
    """``address`` as :data:`_ADDRESS` finds it; empty for other families than IPv4 and IPv6."""
    if family not in (socket.AF_INET, socket.AF_INET6):
        return b""
    host, port = str(address[0]), int(address[1])
    head = int(family).to_bytes(2, "little") + port.to_bytes(2, "big")
    raw = socket.inet_pton(family, host.partition("%")[0])
    return head + raw + bytes(8) if family == socket.AF_INET else head + bytes(4) + raw
