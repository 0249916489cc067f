"""Functions with which Horovod scripts query its build."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
import torch.distributed as dist

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
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "is_homogeneous",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rocm_built",
    "start_timeline",
    "stop_timeline",
]


def nccl_built() -> int:
    """The NCCL version, such as 22703, if NCCL transports CUDA tensors; else 0."""
    if not (torch.cuda.is_available() and dist.is_nccl_available()):
        return 0
    version: tuple[int, ...] = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    major, minor, patch = (*version, 0, 0)[:3]
    return major * 10000 + minor * 100 + patch


def cuda_built() -> bool:
    """Whether torch was built for CUDA."""
    return torch.version.cuda is not None


def rocm_built() -> bool:
    """Whether torch was built for ROCm."""
    return torch.version.hip is not None


def start_timeline(file_path: Any, mark_cycles: bool = False) -> NoReturn:
    """Refused.

    Raises:
        NotImplementedError: always.
    """
    refuse_timeline("torch.profiler")
