"""The transports of tensors in the current round."""

from __future__ import annotations

import torch

from elasticrun import lifecycle
from elasticrun.lifecycle import rank, size

from . import devices
from .transport import HostTransport, Transport

__all__ = ["host_transport", "rank", "size", "transport"]

_host: HostTransport | None = None


def host_transport(what: str = "a collective") -> HostTransport:
    """The transport of host tensors in the current round. Joins the first round if none was joined. Errors name ``what``.

    It is the same object throughout a round, and another one in the next round.
    """
    global _host
    queue = lifecycle.collective_queue(what)
    if _host is None or _host.queue is not queue:
        _host = HostTransport(queue)
    return _host


def transport(device: torch.device) -> Transport:
    """The transport of tensors of ``device``: the collectives of the round for host memory, else the group of the device type."""
    if device.type == "cpu":
        return host_transport()
    return devices.transport(device, host_transport())
