"""What Horovod's scripts ask about its build."""

from __future__ import annotations

from typing import NoReturn

import tensorflow as tf

from elasticrun import collectives, lifecycle

__all__ = [
    "ccl_built",
    "check_num_rank_power_of_2",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "is_homogeneous",
    "join",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rocm_built",
    "start_timeline",
    "stop_timeline",
]


def nccl_built() -> bool:
    """False: tensors of TensorFlow travel from the host's memory."""
    return False


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
    """Whether TensorFlow was built for CUDA."""
    return bool(tf.test.is_built_with_cuda())


def rocm_built() -> bool:
    """Whether TensorFlow was built for ROCm."""
    return bool(tf.test.is_built_with_rocm())


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
    return len(set(collectives.allgather_object(lifecycle.local_size()))) == 1


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Whether ``num_rank`` is a power of 2; nothing here asks for one."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def join() -> NoReturn:
    """Refused.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "join is not offered for TensorFlow: give all ranks as many steps, with steps_per_epoch or ElasticSampler"
    )


def start_timeline(file_path: str, mark_cycles: bool = False) -> NoReturn:
    """Refused.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "start_timeline is not offered: use tf.profiler; the job's own events are on the driver's status page"
    )


def stop_timeline() -> NoReturn:
    """Refused: see :func:`start_timeline`."""
    raise NotImplementedError("stop_timeline is not offered: start_timeline is not either")
