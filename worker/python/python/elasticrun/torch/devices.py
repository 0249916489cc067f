"""Tensors of accelerators: a process group of torch for each kind of device, made anew for each round.

On CUDA that is NCCL. Its rendezvous is the agent's store, under the round's prefix; a round change aborts it
(:mod:`.abort`). Devices without a group of their own go through memory of the host.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from elasticrun import _native

from . import abort
from .failures import judge
from .group_transport import GroupTransport
from .store import round_store
from .transport import HostTransport, Transport

#: Makes the group of this rank: store, rank, size, device.
Factory = Callable[[Store, int, int, torch.device], dist.ProcessGroup]


def nccl(store: Store, rank: int, size: int, device: torch.device) -> dist.ProcessGroup:
    """A group of NCCL."""
    group = dist.ProcessGroup(store, rank, size)
    backend = dist.ProcessGroupNCCL(store, rank, size, dist.ProcessGroupNCCL.Options())
    kind = dist.ProcessGroup.BackendType.NCCL
    group._set_default_backend(kind)
    group._register_backend(torch.device(device.type), kind, backend)
    return group


_factories: dict[str, Factory] = {"cuda": nccl} if dist.is_nccl_available() else {}
_transports: dict[str, tuple[HostTransport, GroupTransport]] = {}


def register(device_type: str, factory: Factory) -> None:
    """Has tensors of ``device_type`` carried by groups that ``factory`` makes."""
    _factories[device_type] = factory
    _transports.pop(device_type, None)


def transport(device: torch.device, host: HostTransport) -> Transport:
    """What carries tensors of ``device`` in the round of ``host``.

    The first call of a round makes the group: all ranks come to it with the same operation.
    """
    factory = _factories.get(device.type)
    if factory is None:
        return host
    known = _transports.get(device.type)
    if known is not None and known[0] is host:
        return known[1]
    world = _native.world()
    store = round_store(world, f"device/{device.type}")
    group = factory(store, host.rank, host.size, device)
    abort.watch(group, world.round)
    made = GroupTransport(group, judge)
    _transports[device.type] = host, made
    return made
