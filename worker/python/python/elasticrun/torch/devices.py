"""Transports of accelerator tensors: one torch process group for each device type, created anew in each round.

On CUDA the group is NCCL. Its rendezvous is the store of the job, under the prefix of the round. A round change aborts it
(:mod:`.abort`). Tensors of devices without a group are copied through host memory.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from elasticrun import _native

from . import abort
from .failures import classify
from .group_transport import GroupTransport
from .store import round_store
from .transport import HostTransport, Transport

#: Creates the group of this rank from store, rank, size and device.
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
    """Registers the ``factory`` of groups that transport tensors of ``device_type``."""
    _factories[device_type] = factory
    _transports.pop(device_type, None)


def transport(device: torch.device, host: HostTransport) -> Transport:
    """The transport of tensors of ``device`` in the round of ``host``.

    The first call of a round creates the group. All ranks make that call with the same operation.
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
    created = GroupTransport(group, classify)
    _transports[device.type] = host, created
    return created
