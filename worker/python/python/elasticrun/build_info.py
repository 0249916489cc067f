"""Functions with which Horovod scripts query its build, as far as the answer is the same in all frameworks."""

from __future__ import annotations

from typing import NoReturn

from . import collectives, lifecycle

__all__ = [
    "ccl_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "is_homogeneous",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "refuse_timeline",
    "stop_timeline",
]


def gloo_built() -> bool:
    """True: collectives on CPUs and elastic jobs, for which scripts need gloo, are available."""
    return True


def gloo_enabled() -> bool:
    """True, as :func:`gloo_built`."""
    return True


def mpi_built() -> bool:
    """False: there is no MPI here."""
    return False


def mpi_enabled() -> bool:
    """False, as :func:`mpi_built`."""
    return False


def mpi_threads_supported() -> bool:
    """False, as :func:`mpi_built`."""
    return False


def ccl_built() -> bool:
    """False: there is no oneCCL here."""
    return False


def ddl_built() -> bool:
    """False: there is no DDL here."""
    return False


def is_homogeneous() -> bool:
    """Whether all hosts have the same number of workers.

    Raises:
        WorkersFailed: the round is over.
    """
    return len(set(collectives.allgather_object(lifecycle.local_size()))) == 1


def refuse_timeline(profiler: str) -> NoReturn:
    """Refuses ``start_timeline`` and names a replacement.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        f"start_timeline is not offered: use {profiler}; the job's own events are on the driver's status page"
    )


def stop_timeline() -> NoReturn:
    """Refused: see ``start_timeline``."""
    raise NotImplementedError("stop_timeline is not offered: start_timeline is not either")
