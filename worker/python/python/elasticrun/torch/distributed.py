"""torch.distributed in a round: made anew for each, in the same process."""

from __future__ import annotations

import atexit
import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from elasticrun import _native

from . import abort, connections, gloo, leaving
from .failures import judge
from .group import NAME
from .group_transport import GroupTransport
from .meeting import Meeting
from .messages import Members, Pairs
from .process_group import ProcessGroup
from .rounds import host_transport
from .store import round_store

_DEFAULT_TIMEOUT = timedelta(minutes=30)

#: What the last call asked for; the next round gets the same.
_wanted: tuple[str | None, timedelta | None] | None = None
#: The round of the default group, if it was made here.
_made: tuple[int, int] | None = None
#: A round, and how many default groups were made in it before the last.
_times: tuple[tuple[int, int] | None, int] = None, 0
#: The last round that began.
_refreshed: tuple[int, int] | None = None


def _create(options: Any, given: Any) -> ProcessGroup:
    """What torch calls for a group; ``options.global_ranks_in_group`` is empty for the default one."""
    host = host_transport()
    ranks = list(options.global_ranks_in_group)
    rank, size = options.group_rank, options.group_size
    if not ranks and (rank, size) != (host.rank, host.size):
        raise ValueError(
            f"rank {rank} of {size} was given, but this is rank {host.rank} of {host.size} of the round: take "
            "rank and size from elasticrun, anew in each round"
        )
    # The round's own collectives have one order, so they serve one group: the default one.
    pairs = Pairs(options.store, rank, options.timeout)
    if not ranks:
        return ProcessGroup(host, pairs, options.timeout)
    meeting = Meeting(options.store, rank, size, options.timeout)
    transport = GroupTransport(meeting.group(), judge)
    whole = ranks == list(range(host.size))
    return ProcessGroup(transport, pairs if whole else Members(meeting), options.timeout)


def register() -> None:
    """Makes the back end known to torch.distributed by its name, and ours around gloo; once."""
    if NAME.upper() not in dist.Backend._plugins:
        create: Any = _create
        atexit.register(leaving.settle)
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])
    gloo.register()


def init_process_group(backend: str | None = None, timeout: timedelta | None = None) -> None:
    """Initialises torch.distributed for the current round; joins the first one if none was joined.

    In each later round of :func:`elasticrun.torch.elastic.run` it is done again before the training
    function is called. Within a round further calls do nothing. Groups of some ranks (``new_group``, a DeviceMesh)
    belong to their round: make them in the training function.

    Args:
        backend: ``elasticrun`` (the default without GPUs), ``nccl`` (the default with), ``gloo``, or what
            else torch.distributed knows. Groups of other back ends are aborted the moment their round is.
        timeout: longest wait of an operation; 30 minutes if not given.

    Raises:
        ValueError: torch knows no such back end.
        WorkersFailed: the round is over.
    """
    global _wanted
    _wanted = (backend, timeout)
    _init(backend, timeout)


def _init(backend: str | None, timeout: timedelta | None) -> None:
    global _made, _times
    host = host_transport()
    world = _native.world()
    now = world.epoch, world.round
    if dist.is_initialized():
        if _made == now:
            return
        retire()
    register()
    abort.listen()
    if backend is None:
        backend = "nccl" if torch.cuda.is_available() and dist.is_nccl_available() else NAME
    _describe(world)
    # Our back end meets its peers by the round itself; other groups (new_group) meet in the store. A group that
    # is destroyed and made again in its round must not find keys of the first.
    _times = (now, _times[1] + 1) if _times[0] == now else (now, 0)
    store = round_store(world, f"torch/{_times[1]}")
    dist.init_process_group(
        backend,
        store=store,
        rank=host.rank,
        world_size=host.size,
        timeout=_DEFAULT_TIMEOUT if timeout is None else timeout,
    )
    _made = now


def refresh() -> None:
    """A round begins: the default group of the last one goes, and comes anew if it was made here.

    Does nothing when it was done in this round.
    """
    global _refreshed
    world = _native.world()
    now = world.epoch, world.round
    if _refreshed == now:
        return
    abort.listen()
    if _refreshed is not None:
        abort.forget(_refreshed[1])
        connections.hang_up(_refreshed[1])
        if _made != now:
            retire()
        connections.forget(_refreshed[1])
    _describe(world)
    if _wanted is not None:
        _init(*_wanted)
    _refreshed = now


def retire() -> None:
    """Destroys the default group of a round that is over; quick, since nobody waits for peers."""
    global _made
    _made = None
    if not dist.is_initialized():
        return
    group: Any = dist.group.WORLD
    if not isinstance(group, ProcessGroup):
        # A plain destroy waits for operations that no peer will complete.
        group.abort()
    dist.destroy_process_group()


def _describe(world: _native.Standing) -> None:
    """The environment that ``init_process_group("...")`` with ``env://`` reads."""
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
