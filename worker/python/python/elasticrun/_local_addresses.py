"""Addresses of this machine at which workers of other hosts may reach it."""

from __future__ import annotations

import ipaddress
import socket

__all__ = ["addresses"]

#: Addresses that are reserved for documentation, of each family.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def addresses() -> list[str]:
    """Those that the host name resolves to, then those from which this machine sends, then its loopback addresses."""
    try:
        found = [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)]
    except OSError:
        found = []
    found += [_source(family, target) for family, target in _ELSEWHERE]
    # Addresses of one link need the name of an interface, which differs on each host.
    usable = [address for address in found if address and not _ip(address).is_link_local]
    return sorted(dict.fromkeys([*usable, "127.0.0.1"]), key=lambda address: _ip(address).is_loopback)


def _source(family: socket.AddressFamily, target: str) -> str:
    """The address from which this machine sends to ``target``. Empty: there is no route."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Sends nothing: connecting a UDP socket only selects the route.
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(address.partition("%")[0])
