"""The names that ``elasticrun.keras`` and ``elasticrun.tensorflow.keras`` share: all that do not depend on the Keras version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elasticrun.tensorflow import (
    Adasum,
    Average,
    Compression,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    add_process_set,
    allgather_object,
    barrier,
    broadcast_global_variables,
    broadcast_object,
    broadcast_variables,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    init,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from elasticrun.tensorflow.gradients import Groups

from . import saving
from .collectives import allgather, allreduce, broadcast, reducescatter
from .optimizer import DistributedOptimizer as _DistributedOptimizer

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]


def DistributedOptimizer(  # Horovod's name
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: Any = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """See :func:`elasticrun.tensorflow.DistributedOptimizer`. The arguments are in the order of Horovod's Keras."""
    return _DistributedOptimizer(
        optimizer,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        backward_passes_per_step=backward_passes_per_step,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        average_aggregated_gradients=average_aggregated_gradients,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
    )


def loader(keras: Any) -> Callable[..., Any]:
    """Creates ``load_model`` for a Keras version."""

    def load_model(
        filepath: Any,
        custom_optimizers: Sequence[type] | None = None,
        custom_objects: Mapping[str, Any] | None = None,
        compression: Any = Compression.none,
        legacy_opts: bool = False,
    ) -> Any:
        """Loads a saved model. Its optimizer is distributed and has the saved state.

        Args:
            filepath: an argument of ``keras.models.load_model``.
            custom_optimizers: optimizer classes that are not part of Keras.
            custom_objects: other classes and functions, by name.
            compression: compression of gradients, from :class:`Compression`.
            legacy_opts: accepted for Horovod compatibility, without effect: the optimizer has the saved class.
        """
        return saving.load_model(keras, filepath, custom_optimizers, custom_objects, compression)

    return load_model
