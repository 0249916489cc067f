"""What an error of torch means: that the round is over, or what it says."""

from __future__ import annotations

import torch.distributed as dist

from elasticrun import _native, errors

from . import abort
from .group import Group

#: Seconds to hear of the round's abort after an operation of gloo or NCCL failed. Its connections break
#: at once when a peer dies; the word of the driver comes some milliseconds later.
PATIENCE = 5.0


def judge(error: Exception) -> Exception:
    """``error`` itself, or the error of the round that it comes from.

    torch makes a RuntimeError of whatever fails below it. It comes from the round if the round was aborted,
    or if an operation of our own back end failed. After an operation of another back end the abort may not
    have come yet, so it is waited for, at most :data:`PATIENCE`.
    """
    if isinstance(error, errors.ElasticrunError) or not isinstance(error, RuntimeError):
        return error
    ours = own_failure()
    if ours is not None:
        return ours
    if not _native.in_round():
        return error
    round = _native.world().round
    if abort.aborted(round, PATIENCE if _foreign(error) else 0.0):
        return errors.WorkersFailed(f"round {round} was aborted while torch was at work: {error}")
    return error


def own_failure() -> Exception | None:
    """What the first failed operation of the default group said, if the group is ours."""
    if not dist.is_initialized():
        return None
    group = dist.group.WORLD
    return group.error if isinstance(group, Group) else None


def _foreign(error: RuntimeError) -> bool:
    """Whether ``error`` may come from a connection of gloo or NCCL, or from an error of the round in a future's callback."""
    kinds = tuple(
        getattr(dist, name)
        for name in ("DistError", "DistBackendError", "DistNetworkError", "DistStoreError")
        if hasattr(dist, name)
    )
    words = str(error).lower()
    return isinstance(error, kinds) or any(
        word in words for word in ("gloo", "nccl", "connection", "timed out", "abort", "workersfailed")
    )
