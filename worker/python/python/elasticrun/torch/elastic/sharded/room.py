"""Whether each host has memory for the commits of its workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticrun import _native
from elasticrun.collectives import allgather_object
from elasticrun.errors import StateError


@dataclass(frozen=True)
class Need:
    """What a worker needs for its commits.

    Attributes:
        leader: the lowest rank of its host.
        host: name of its host.
        nbytes: bytes beyond what the worker has for commits.
        available: bytes that the system still has for the worker. None if it does not say.
    """

    leader: int
    host: str
    nbytes: int
    available: int | None


def check_room(layout: _native.Layout, shard: int) -> None:
    """Raises in all workers if a host has no memory for two commits of its workers. All workers call it.

    Without this check the system would kill a worker or the agent of that host, and with the agent its shards.

    Args:
        layout: how the state is divided.
        shard: the shard of this worker.

    Raises:
        StateError: a host has no memory for the commits.
    """
    world = _native.world()
    nbytes, available = _native.memory_for_commits(layout, shard, 0)
    own = Need(world.rank - world.local_rank, world.host, nbytes, available)
    lacking = first_lacking(allgather_object(own, "the memory for a sharded state"))
    if lacking is not None:
        raise StateError(lacking)


def first_lacking(needs: Sequence[Need]) -> str | None:
    """Why a host has no memory for the commits of its workers. None if all have.

    Args:
        needs: of all workers.
    """
    by_host: dict[int, list[Need]] = {}
    for need in needs:
        by_host.setdefault(need.leader, []).append(need)
    for of_host in by_host.values():
        nbytes = sum(need.nbytes for need in of_host)
        # They have asked at slightly different moments.
        available = max((need.available for need in of_host if need.available is not None), default=nbytes)
        if nbytes > available:
            return (
                f"no room on {of_host[0].host}: the commits of its {len(of_host)} workers need {_megabytes(nbytes)} more"
                f" memory, and {_megabytes(available)} are available; use fewer workers there, or more on other hosts"
            )
    return None


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.0f} MB"
