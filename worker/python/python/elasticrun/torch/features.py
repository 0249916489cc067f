"""What Horovod's scripts ask about its build."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
import torch.distributed as dist


def nccl_built() -> int:
    """A true value if tensors of CUDA travel by NCCL: its version, such as 22703."""
    if not (torch.cuda.is_available() and dist.is_nccl_available()):
        return 0
    version: tuple[int, ...] = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    major, minor, patch = (*version, 0, 0)[:3]
    return major * 10000 + minor * 100 + patch


def gloo_built() -> bool:
    """True: all that scripts take from gloo (collectives on CPUs, elastic jobs) is there."""
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


def cuda_built() -> bool:
    """Whether torch was built for CUDA."""
    return torch.version.cuda is not None


def rocm_built() -> bool:
    """Whether torch was built for ROCm."""
    return torch.version.hip is not None


def ccl_built() -> bool:
    """False: there is no oneCCL here."""
    return False


def ddl_built() -> bool:
    """False: there is no DDL here."""
    return False


def is_homogeneous() -> bool:
    """Whether all hosts have as many workers.

    Raises:
        WorkersFailed: the round is over.
    """
    from elasticrun.lifecycle import local_size

    from .functions import allgather_object

    return len(set(allgather_object(local_size()))) == 1


def start_timeline(file_path: Any, mark_cycles: bool = False) -> NoReturn:
    """Refused.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "start_timeline is not offered: use torch.profiler; the job's own events are on the driver's status page"
    )


def stop_timeline() -> NoReturn:
    """Refused: see :func:`start_timeline`."""
    raise NotImplementedError("stop_timeline is not offered: start_timeline is not either")
