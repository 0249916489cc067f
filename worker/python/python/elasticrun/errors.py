"""Errors: one class for each kind, all under :class:`ElasticrunError`.

A worker sees three groups. :class:`Interrupted` ends a round, and :func:`elasticrun.elastic.run` answers it
with the next one: let it pass through the training function. :class:`Stopped` ends the process, in order.
All others are mistakes or losses that a new round does not mend.

:func:`elasticrun.run`, which starts a job and waits for it, raises a :class:`JobError`: one class for each
documented exit code of ``elasticrun``.
"""

from __future__ import annotations

__all__ = [
    "AgentLost",
    "CollectiveMismatch",
    "CollectiveTimeout",
    "DataError",
    "DiscoveryError",
    "ElasticrunError",
    "ForkedError",
    "HostsUpdated",
    "Interrupted",
    "JobError",
    "JobStoppedError",
    "MaxResetLimitExceededError",
    "NotInitialized",
    "Removed",
    "StateError",
    "StateLostError",
    "Stopped",
    "StoreError",
    "StoreTimeout",
    "TooFewWorkersError",
    "UsageError",
    "WorkerFailedError",
    "WorkersFailed",
]


class ElasticrunError(RuntimeError):
    """Anything that this package raises by itself."""


class Interrupted(ElasticrunError):
    """The round of this worker is over and there may be a next one."""


class WorkersFailed(Interrupted):
    """A worker of the round failed. Training goes on from the newest commit."""


class HostsUpdated(Interrupted):
    """The hosts of the job change. All workers stopped at this boundary, and it is committed.

    Attributes:
        skip_sync: whether the state of this worker needs no sync before training goes on. Always true:
            who holds the commit of this boundary keeps it, and newcomers alone are brought to it.
    """

    def __init__(self, *args: object, skip_sync: bool = True) -> None:
        super().__init__(*args)
        self.skip_sync = skip_sync


class Stopped(ElasticrunError):
    """This worker was told to end: nothing is wrong here, and its exit code does not count."""


class Removed(Stopped):
    """The slot of this worker is no longer part of the job. Its rank is -1."""


class AgentLost(ElasticrunError):
    """The agent of this host is gone, so there is no job any more."""


class NotInitialized(ElasticrunError):
    """A function needs ``init()`` to be called before."""


class ForkedError(ElasticrunError):
    """A forked child called what only the process can do that called ``init()``."""


class CollectiveMismatch(ElasticrunError):
    """Ranks did not call the same collective on the same kind of array. Names rank and array."""


class CollectiveTimeout(ElasticrunError):
    """Not all ranks came to a collective in time. Names those that are missing."""


class StoreError(ElasticrunError):
    """The job's key-value store refused a request; the message says why."""


class StoreTimeout(StoreError):
    """Keys did not come in time; the message names them."""


class StateError(ElasticrunError):
    """A state cannot be serialised or restored. Names the attribute."""


class DataError(ElasticrunError):
    """Rows cannot be read, or their audit cannot be written. Names file, row group and column."""


class JobError(ElasticrunError):
    """A job did not succeed.

    Attributes:
        exit_code: that of ``elasticrun``; -N if signal N ended it.
    """

    exit_code: int

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[type[JobError], tuple[str, int]]:
        return type(self), (str(self), self.exit_code)


class WorkerFailedError(JobError):
    """Exit code 1: a worker failed the job. The message names the first one and its last output."""


class UsageError(JobError):
    """Exit code 2: wrong usage or configuration; nothing was started."""


class TooFewWorkersError(JobError):
    """Exit code 3: fewer than ``min_np`` workers for longer than the elastic timeout."""


class MaxResetLimitExceededError(JobError):
    """Exit code 4: another round was needed, and ``reset_limit`` were started already."""


class DiscoveryError(JobError):
    """Exit code 5: the first discovery of hosts failed for a permanent reason."""


class StateLostError(JobError):
    """Exit code 6: no worker survived and no committed state is left."""


class JobStoppedError(JobError):
    """Exit code 128+N: the job was told to stop by signal N."""


_BY_EXIT_CODE: dict[int, type[JobError]] = {
    1: WorkerFailedError,
    2: UsageError,
    3: TooFewWorkersError,
    4: MaxResetLimitExceededError,
    5: DiscoveryError,
    6: StateLostError,
}


def of_exit_code(exit_code: int, message: str) -> JobError:
    """The error that says what ``exit_code`` says; ``exit_code`` is not 0."""
    stopped = exit_code < 0 or exit_code > 128
    kind = JobStoppedError if stopped else _BY_EXIT_CODE.get(exit_code, JobError)
    return kind(message, exit_code)
