"""The connections of gloo: found when a group is made, broken when its round is over.

gloo's groups have no abort, and their memory lives as long as anything refers to them (a
DistributedDataParallel in a traceback is enough). A member that waits for one that is alive and has left for the
next round would therefore wait for ever. Broken connections end such an operation at once.

Each gloo group listens on a socket of its own, and leaves its address in the store in which its members meet,
which is ours. A connection has one end that was accepted there; so it is enough that every member shuts the
ends that it accepted.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

_lock = threading.Lock()
#: Ports on which groups of a round listen in this process, by round.
_listeners: dict[int, set[int]] = {}


def met(round: int, value: bytes) -> None:
    """Sees what is set in the store of ``round``: an address there on which this process listens is a group's."""
    with _lock:
        known = _listeners.setdefault(round, set())
    new = {
        end.getsockname()[1]
        for end in _sockets()
        if end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        and _address(end.family, end.getsockname()[1]) in value
    }
    with _lock:
        known |= new


def listeners(round: int) -> set[int]:
    """Ports on which groups of ``round`` listen in this process."""
    with _lock:
        return set(_listeners.get(round, ()))


def hang_up(round: int) -> None:
    """Shuts the connections that groups of ``round`` accepted. Operations on them end with an error."""
    with _lock:
        ports = _listeners.pop(round, None)
    if not ports:
        return
    for end in _sockets():
        # Not connected: a listener, or a peer was quicker.
        with contextlib.suppress(OSError):
            if end.getsockname()[1] in ports and end.getpeername():
                end.shutdown(socket.SHUT_RDWR)


def _address(family: int, port: int) -> bytes:
    """How the kernel's structures for an address of IPv4 or IPv6 begin."""
    return int(family).to_bytes(2, "little") + port.to_bytes(2, "big")


def _sockets() -> Iterator[socket.socket]:
    """The IP sockets of this process, one after the other; each is valid until the next is asked for."""
    for entry in os.listdir("/proc/self/fd"):
        # Others may close theirs meanwhile.
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{entry}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry))) as end:
                if end.family in (socket.AF_INET, socket.AF_INET6) and end.type == socket.SOCK_STREAM:
                    yield end
