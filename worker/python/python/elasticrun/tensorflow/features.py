"""Functions with which Horovod scripts query its build."""

from __future__ import annotations

from typing import NoReturn

import tensorflow as tf

from elasticrun.build_info import (
    ccl_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    is_homogeneous,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    refuse_timeline,
    stop_timeline,
)

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
    """False: TensorFlow tensors are sent from host memory."""
    return False


def cuda_built() -> bool:
    """Whether TensorFlow was built for CUDA."""
    return bool(tf.test.is_built_with_cuda())


def rocm_built() -> bool:
    """Whether TensorFlow was built for ROCm."""
    return bool(tf.test.is_built_with_rocm())


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Whether ``num_rank`` is a power of 2. No function of elasticrun requires that."""
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
    refuse_timeline("tf.profiler")
