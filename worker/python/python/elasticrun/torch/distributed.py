"""Initialises torch.distributed anew for each round, in the same process."""

from __future__ import annotations

import atexit
import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from elasticrun import _native

from . import abort, connections, devices, dtensor_caches, gloo, gloo_shutdown
from .failures import classify
from .group import NAME
from .group_transport import GroupTransport
from .messages import GroupMessages, PairMessages
from .process_group import ProcessGroup
from .rounds import host_transport
from .store import round_store
from .subgroup_rendezvous import SubgroupRendezvous
from .transport import StagedTransport

_DEFAULT_TIMEOUT = timedelta(minutes=30)

#: Back end and timeout of the last call, which the next round reuses.
_requested: tuple[str | None, timedelta | None] | None = None
#: Epoch and round of the default group, if this module created it.
_group_round: tuple[int, int] | None = None
#: The last round with a default group, and the number of earlier default groups in it.
_group_index: tuple[tuple[int, int] | None, int] = None, 0
#: The last round for which :func:`refresh` ran.
_refreshed: tuple[int, int] | None = None


def _create(options: Any, given: Any) -> ProcessGroup:
    """Creates a group for torch. ``options.global_ranks_in_group`` is empty for the default group."""
    host = host_transport()
    ranks = list(options.global_ranks_in_group)
    rank, size = options.group_rank, options.group_size
    if not ranks and (rank, size) != (host.rank, host.size):
        raise ValueError(
            f"rank {rank} of {size} was given, but this is rank {host.rank} of {host.size} of the round: take "
            "rank and size from elasticrun, anew in each round"
        )
    # The collective queue has a single order, so it serves only one group: the default one.
    pairs = PairMessages(options.store, rank, options.timeout)
    if not ranks:
        return ProcessGroup(host, pairs, options.timeout)
    rendezvous = SubgroupRendezvous(options.store, rank, size, options.timeout)
    transport = StagedTransport(GroupTransport(rendezvous.group(), classify))
    whole = ranks == list(range(host.size))
    return ProcessGroup(transport, pairs if whole else GroupMessages(rendezvous), options.timeout)


def register() -> None:
    """Registers the back end and the wrapper around gloo with torch.distributed. Further calls do nothing."""
    if NAME.upper() not in dist.Backend._plugins:
        create: Any = _create
        atexit.register(gloo_shutdown.wait_for_threads)
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])
    gloo.register()


def init_process_group(backend: str | None = None, timeout: timedelta | None = None) -> None:
    """Initialises torch.distributed for the current round; joins the first one if none was joined.

    :func:`elasticrun.torch.elastic.run` repeats the initialisation in each later round, before it calls the training
    function. Further calls within a round do nothing. Groups of some ranks (``new_group``, a DeviceMesh) belong to their
    round: create them in the training function.

    Args:
        backend: ``elasticrun`` (the default without GPUs), ``nccl`` (the default with GPUs), ``gloo``, or any other back end
            of torch.distributed. Groups of other back ends are aborted as soon as their round is.
        timeout: maximum wait of an operation. Default: 30 minutes.

    Raises:
        ValueError: torch has no such back end.
        WorkersFailed: the round is over.
    """
    global _requested
    _requested = (backend, timeout)
    _init(backend, timeout)


def require_process_group() -> None:
    """Initialises torch.distributed for the current round as the program did before, or with the defaults."""
    init_process_group(*(_requested or (None, None)))


def _init(backend: str | None, timeout: timedelta | None) -> None:
    global _group_round, _group_index
    host = host_transport()
    world = _native.world()
    now = world.epoch, world.round
    if dist.is_initialized():
        if _group_round == now:
            return
        retire()
    register()
    abort.listen()
    if backend is None:
        backend = devices.default_backend(host)
    _set_environment(world)
    # The default group of the elasticrun back end needs no store; other groups (new_group) connect through it. A group
    # that is destroyed and created again in the same round must not find keys of the first one.
    _group_index = (now, _group_index[1] + 1) if _group_index[0] == now else (now, 0)
    store = round_store(world, f"torch/{_group_index[1]}")
    dist.init_process_group(
        backend,
        store=store,
        rank=host.rank,
        world_size=host.size,
        timeout=_DEFAULT_TIMEOUT if timeout is None else timeout,
    )
    _group_round = now


def refresh() -> None:
    """Starts a round: destroys the default group of the previous round, and creates a new one if this module had created that.

    Further calls in a round do nothing.
    """
    global _refreshed
    world = _native.world()
    now = world.epoch, world.round
    if _refreshed == now:
        return
    abort.listen()
    if _refreshed is not None:
        abort.forget(_refreshed[1])
        connections.break_connections(_refreshed[1])
        if _group_round != now:
            retire()
        connections.forget(_refreshed[1])
    _set_environment(world)
    if _requested is not None:
        _init(*_requested)
    _refreshed = now


def owns_default_group() -> bool:
    """Whether :func:`init_process_group` has created the default group."""
    return _group_round is not None


def retire() -> None:
    """Destroys the groups of a round that is over, without waiting for peers, and drops what torch keeps of its meshes."""
    global _group_round
    _group_round = None
    if dist.is_initialized():
        group: Any = dist.group.WORLD
        if not isinstance(group, ProcessGroup):
            # Destroying it without an abort would wait for operations that no peer will complete.
            group.abort()
        dist.destroy_process_group()
    dtensor_caches.end_round()


def _set_environment(world: _native.WorldInfo) -> None:
    """Sets the environment that ``init_process_group("...")`` with ``env://`` reads."""
    address, _, port = world.coordinator.rpartition(":")
    os.environ.update(
        RANK=str(world.rank),
        WORLD_SIZE=str(world.size),
        LOCAL_RANK=str(world.local_rank),
        LOCAL_WORLD_SIZE=str(world.local_size),
        GROUP_RANK=str(world.cross_rank),
        GROUP_WORLD_SIZE=str(world.cross_size),
    )
    if address and port:
        os.environ.update(MASTER_ADDR=address.strip("[]"), MASTER_PORT=port)
