"""The round that this process is in, and what carries its tensors."""

from __future__ import annotations

import torch

from elasticrun import lifecycle
from elasticrun.lifecycle import rank, size

from . import devices
from .transport import HostTransport, Transport

__all__ = ["host_transport", "rank", "size", "transport"]

_host: HostTransport | None = None


def host_transport(what: str = "a collective") -> HostTransport:
    """The collectives of the round, for ``what``; joins the first round if this process has joined none.

    The same object throughout a round, and another one in the next.
    """
    global _host
    lane = lifecycle.lane(what)
    if _host is None or _host.lane is not lane:
        _host = HostTransport(lane)
    return _host


def transport(device: torch.device) -> Transport:
    """What carries tensors of ``device``: on the host the collectives of the round, else its own group."""
    if device.type == "cpu":
        return host_transport()
    return devices.transport(device, host_transport())
