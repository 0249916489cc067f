"""Classifies errors of torch, which may be caused by the end of the round."""

from __future__ import annotations

import torch.distributed as dist

from elasticrun import _native, errors

from . import abort
from .group import Group

#: Maximum seconds to wait for the round's abort after an operation of gloo or NCCL has failed. Its connections break as
#: soon as a peer dies; the abort arrives some milliseconds later.
ABORT_TIMEOUT = 5.0


def classify(error: Exception) -> Exception:
    """The error of the round that caused ``error``, or ``error`` itself.

    torch raises a RuntimeError for any failure of a back end. The round caused it if the round was aborted, or if an
    operation of the elasticrun back end failed. After an operation of another back end the abort may not have arrived yet,
    so this function waits for it, at most :data:`ABORT_TIMEOUT`.
    """
    if isinstance(error, errors.ElasticrunError) or not isinstance(error, RuntimeError):
        return error
    failure = default_group_failure()
    if failure is not None:
        # The group has a copy, without the traceback that the caller needs.
        return error if type(failure) is type(error) and failure.args == error.args else failure
    if not _native.in_round():
        return error
    round = _native.world().round
    if abort.aborted(round, ABORT_TIMEOUT if _foreign(error) else 0.0):
        return errors.WorkersFailed(f"round {round} was aborted while torch was at work: {error}")
    return error


def default_group_failure() -> Exception | None:
    """The error of the first failed operation of the default group, if that group has the elasticrun back end."""
    if not dist.is_initialized():
        return None
    group = dist.group.WORLD
    return group.error if isinstance(group, Group) else None


def _foreign(error: RuntimeError) -> bool:
    """Whether ``error`` may come from a connection of gloo or NCCL, or from an error of the round in a callback of a future."""
    kinds = tuple(
        getattr(dist, name)
        for name in ("DistError", "DistBackendError", "DistNetworkError", "DistStoreError")
        if hasattr(dist, name)
    )
    words = str(error).lower()
    return isinstance(error, kinds) or any(
        word in words for word in ("gloo", "nccl", "connection", "timed out", "abort", "workersfailed")
    )
