"""Addresses of this machine."""

from __future__ import annotations

import socket


def own_address(host: str, port: int) -> str:
    """The address of this machine on the way to a host."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # Sends nothing: the system chooses the address for this way.
        probe.connect(address)
        return str(probe.getsockname()[0])
