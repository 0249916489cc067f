"""The default group of torch.distributed before a worker has joined its first round.

Frameworks ask torch.distributed for the rank and the number of processes long before they train. A worker that is added to a
running job must not join a round then: it would exchange messages of its start with workers that are in the middle of their
training. So it gets a group that has the expected rank and size, and no connections.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch.distributed as dist

import elasticrun.torch as hvd
from elasticrun import lifecycle
from elasticrun.errors import ElasticrunError, NotInitialized
from elasticrun.torch import distributed
from elasticrun.torch.group import NamedGroup
from elasticrun.torch.inflight import Inflight
from elasticrun.torch.work import Work

NAME = "elasticrun-waiting"

_COLLECTIVES = (
    "allgather", "all_gather_single", "allgather_coalesced", "allreduce", "allreduce_coalesced", "alltoall",
    "all_to_all_single", "broadcast", "gather", "recv", "recv_anysource", "reduce", "reduce_scatter",
    "reduce_scatter_single", "scatter", "send", "_allgather_base", "_reduce_scatter_base", "alltoall_base",
)  # fmt: skip


class WaitingGroup(NamedGroup):
    """Has a rank and a size. A barrier returns at once; other operations raise NotInitialized."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size, NAME)

    def barrier(self, opts: Any = None, timeout: Any = None) -> Work:
        """Waits for nobody: workers of a running job do not come to the barriers of a new one's start."""
        return Work(Inflight([]), [], None, lambda _: None)

    def getBackendName(self) -> str:
        """The name of the back end."""
        return NAME

    def shutdown(self) -> None:
        """Does nothing."""

    def abort(self) -> None:
        """Does nothing."""


def _refused(name: str) -> Any:
    def refuse(self: WaitingGroup, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotInitialized(
            f"{name}: workers exchange tensors while they train only: a worker that is added to the job later would be"
            " alone with this call. Move it behind the start of the training"
        )

    return refuse


for _name in _COLLECTIVES:
    setattr(WaitingGroup, _name, _refused(_name))


def require_none_but_ours() -> None:
    """Checks that the default group of torch.distributed, if there is one, is the waiting group or one of a round.

    Raises:
        ElasticrunError: the script, or its framework, has initialised torch.distributed by itself.
    """
    if (
        dist.is_initialized()
        and not isinstance(dist.group.WORLD, WaitingGroup)
        and not distributed.owns_default_group()
    ):
        raise ElasticrunError(
            "torch.distributed was initialised before elasticrun could do it, and a worker that joins later would wait for"
            " the others there: import the module of elasticrun first, and leave out init_process_group()"
        )


def form() -> None:
    """Attaches this process to its job, and creates the waiting group unless torch.distributed is initialised."""
    hvd.init()
    if dist.is_initialized():
        return
    if NAME.upper() not in dist.Backend._plugins:
        create: Any = _create
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])
    world = lifecycle.world()
    # A worker that no round has a place for yet has no rank.
    rank, size = max(world.rank, 0), max(world.size, world.rank + 1, 1)
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(NAME, store=store, rank=rank, world_size=size)


def _create(options: Any, _given: Any) -> WaitingGroup:
    return WaitingGroup(options.group_rank, options.group_size)
