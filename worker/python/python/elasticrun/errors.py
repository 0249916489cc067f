"""The exceptions of this package, all derived from :class:`ElasticrunError`.

Exceptions in a worker form three groups. :class:`Interrupted` ends a round, and :func:`elasticrun.elastic.run` continues
with the next one: let it propagate out of the training function. :class:`Stopped` ends the process without a failure. All
others are mistakes or losses that a new round does not repair.

:func:`elasticrun.run`, which starts a job and waits for it, raises a subclass of :class:`JobError` for each documented exit
code of ``elasticrun``, or :class:`MissingResultsError`.
"""

from __future__ import annotations

from typing import Any

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
    "MissingResultsError",
    "NotInitialized",
    "PsBadRequest",
    "PsConfigError",
    "PsError",
    "PsFinalized",
    "PsNodeLost",
    "PsRefused",
    "PsStartError",
    "PsTimeout",
    "Removed",
    "RendezvousClosed",
    "RendezvousCorrupt",
    "RendezvousError",
    "RendezvousReleased",
    "RendezvousTimeout",
    "RendezvousUnreachable",
    "StateError",
    "StateLostError",
    "Stopped",
    "StoreError",
    "StoreTimeout",
    "TooFewWorkersError",
    "UsageError",
    "WorkerEnded",
    "WorkerFailedError",
    "WorkerTraceback",
    "WorkersFailed",
]


class ElasticrunError(RuntimeError):
    """Base of all exceptions that this package defines."""


class Interrupted(ElasticrunError):
    """The round of this worker is over. A next one may follow."""


class WorkersFailed(Interrupted):
    """A worker of the round failed. Training continues from the newest commit."""


class WorkerEnded(WorkersFailed):
    """Another rank has ended or left its training, while this rank still calls collectives. The error names that rank.

    The usual reason is uneven data: some ranks have more batches than others.
    """


class HostsUpdated(Interrupted):
    """The hosts of the job change. All workers stopped at this boundary, and it is committed.

    Attributes:
        skip_sync: whether the state of this worker needs no sync before training continues. Always true:
            workers that hold the commit of this boundary keep it, and only new workers receive it.
    """

    def __init__(self, *args: object, skip_sync: bool = True) -> None:
        super().__init__(*args)
        self.skip_sync = skip_sync


class Stopped(ElasticrunError):
    """This worker has to end. That is not a failure, and its exit code does not count."""


class Removed(Stopped):
    """The slot of this worker is no longer part of the job. Its rank is -1."""


class AgentLost(ElasticrunError):
    """The connection to the agent of this host is lost, so the process is no longer part of a job."""


class NotInitialized(ElasticrunError):
    """A function was called that needs ``init()`` first."""


class ForkedError(ElasticrunError):
    """A forked child called a function that only the process that called ``init()`` may call."""


class CollectiveMismatch(ElasticrunError):
    """Ranks called different collectives, or arrays differ in shape or type. The message names rank and array."""


class CollectiveTimeout(ElasticrunError):
    """A collective timed out before all ranks joined it. The message names the missing ranks."""


class StoreError(ElasticrunError):
    """The job's key-value store refused a request. The message gives the reason."""


class StoreTimeout(StoreError):
    """Keys were not set before the timeout. The message names them."""


class StateError(ElasticrunError):
    """A state cannot be serialised or restored. The message names the attribute."""


class DataError(ElasticrunError):
    """Rows cannot be read, or their audit cannot be written. The message names file, row group and column."""


class RendezvousError(ElasticrunError):
    """A rendezvous of ``torchrun --rdzv-backend=elasticrun`` failed. The handler raises the class of torch for each reason."""


class RendezvousClosed(RendezvousError):
    """The rendezvous is closed: the job is over."""


class RendezvousReleased(RendezvousError):
    """The rendezvous closed while this node was redundant. The node was not needed, and this is no failure."""


class RendezvousTimeout(RendezvousError):
    """Too few nodes came in time."""


class RendezvousUnreachable(RendezvousError):
    """No server answers at the endpoint."""


class RendezvousCorrupt(RendezvousError):
    """The state of the rendezvous cannot be read, for example because nodes run different releases."""


class PsError(ElasticrunError):
    """Base of the exceptions of :mod:`elasticrun.ps`, the parameter server."""


class PsConfigError(PsError):
    """A variable of a node is missing or wrong, or an app or node is named that is taken or not there."""


class PsStartError(PsError):
    """A node cannot start: not all nodes came in time, the scheduler cannot be reached or has another key, or its port is taken."""


class PsNodeLost(PsError):
    """A node is dead, so a request or barrier cannot be completed. The message names it."""


class PsTimeout(PsError):
    """An answer or a barrier was not there in time. The message names the missing nodes."""


class PsBadRequest(PsError):
    """Keys, lens and values of a request do not belong together. The message names the position."""


class PsRefused(PsError):
    """A server refused a request. The message names the server and the reason, such as the exception of its handler."""


class PsFinalized(PsError):
    """The node has been finalized."""


class WorkerTraceback(ElasticrunError):
    """The traceback of an exception in a worker, as text. The exception itself cannot bring it along."""


class MissingResultsError(ElasticrunError):
    """A job succeeded, but not every member of its last round returned a result that can be read here.

    Attributes:
        results: the return values that can be read, by rank.
    """

    results: dict[int, Any]

    def __init__(self, message: str, results: dict[int, Any]) -> None:
        super().__init__(message)
        self.results = results

    def __reduce__(self) -> tuple[type[MissingResultsError], tuple[str, dict[int, Any]]]:
        return type(self), (str(self), self.results)


class JobError(ElasticrunError):
    """A job did not succeed.

    Its ``__cause__`` is the exception of the first worker that failed in the newest round, if one arrived. The cause of that one
    is a :class:`WorkerTraceback`.

    Attributes:
        exit_code: the exit code of ``elasticrun``; -N if signal N ended it.
        results: the return values that arrived from members of the newest round, by rank.
    """

    exit_code: int
    results: dict[int, Any]

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.results = {}

    def __reduce__(self) -> tuple[type[JobError], tuple[str, int], dict[str, Any]]:
        return type(self), (str(self), self.exit_code), {"results": self.results}


class WorkerFailedError(JobError):
    """Exit code 1: a worker failed and ended the job. The message names the first failed worker and quotes its last output."""


class UsageError(JobError):
    """Exit code 2: wrong usage or configuration; nothing was started."""


class TooFewWorkersError(JobError):
    """Exit code 3: fewer than ``min_np`` workers for longer than the elastic timeout."""


class MaxResetLimitExceededError(JobError):
    """Exit code 4: another round was needed, and ``reset_limit`` were started already."""


class DiscoveryError(JobError):
    """Exit code 5: the first discovery of hosts failed for a permanent reason."""


class StateLostError(JobError):
    """Exit code 6: no committed state is left, or none to resume from."""


class JobStoppedError(JobError):
    """Exit code 128+N: signal N stopped the job."""


_BY_EXIT_CODE: dict[int, type[JobError]] = {
    1: WorkerFailedError,
    2: UsageError,
    3: TooFewWorkersError,
    4: MaxResetLimitExceededError,
    5: DiscoveryError,
    6: StateLostError,
}


def from_exit_code(exit_code: int, message: str) -> JobError:
    """The exception for an ``exit_code`` other than 0."""
    stopped = exit_code < 0 or exit_code > 128
    kind = JobStoppedError if stopped else _BY_EXIT_CODE.get(exit_code, JobError)
    return kind(message, exit_code)
