"""Transports of accelerator tensors: one torch process group for each device type, created anew in each round.

On CUDA the group is NCCL. Its rendezvous is the store of the job, under the prefix of the round. A round change aborts it
(:mod:`.abort`). Tensors of devices without a group are copied through host memory. So are those of a GPU that several ranks
share, which NCCL refuses, if the default group has the back end ``elasticrun``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from elasticrun import _native
from elasticrun.collectives import allgather_object

from . import abort
from .failures import classify
from .group import NAME
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
_transports: dict[str, tuple[HostTransport, Transport]] = {}
#: Whether ranks share GPUs in the round of a transport, if they were compared.
_shared: tuple[HostTransport, bool] | None = None


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
    if device.type == "cuda" and dist.is_initialized() and dist.get_backend() == NAME:
        # Named by the program, or chosen since ranks share GPUs.
        _transports[device.type] = host, host
        return host
    world = _native.world()
    store = round_store(world, f"device/{device.type}")
    group = factory(store, host.rank, host.size, device)
    abort.watch(group, world.round)
    created = GroupTransport(group, classify)
    _transports[device.type] = host, created
    return created


def compare_gpus(host: HostTransport) -> None:
    """Finds out whether ranks of the round of ``host`` have fewer GPUs than they are.

    All ranks call it at the start of a round, before other collectives.
    """
    global _shared
    seen = allgather_object(_gpus(), "the GPUs of ranks") if host.size > 1 else []
    # Ranks that see the same GPUs take one each.
    _shared = host, any(0 < len(gpus) < seen.count(gpus) for gpus in seen)


def default_backend(host: HostTransport) -> str:
    """The back end for a program that names none: NCCL with GPUs, unless :func:`compare_gpus` has found that ranks share them."""
    are_shared = _shared is not None and _shared[0] is host and _shared[1]
    return "nccl" if torch.cuda.is_available() and dist.is_nccl_available() and not are_shared else NAME


def _gpus() -> list[str]:
    """What distinguishes the GPUs that this process sees from all others. Empty if torch does not tell (before 2.4)."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    found = (getattr(torch.cuda.get_device_properties(index), "uuid", None) for index in range(count))
    return sorted(str(uuid) for uuid in found if uuid is not None)
