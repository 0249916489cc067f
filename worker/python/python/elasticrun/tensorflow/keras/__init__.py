"""elasticrun for ``keras``: Horovod's interface, in jobs whose hosts come and go.

::

    import elasticrun.tensorflow.keras as hvd

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size())), loss=...)
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    callbacks = [
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=10),
    ]

    @hvd.elastic.run
    def train(state):
        model.fit(data, epochs=24, initial_epoch=state.epoch, steps_per_epoch=100, callbacks=callbacks)

    train(state)

The Keras is that of ``tf.keras``: Keras 3, or tf_keras (Keras 2) with ``TF_USE_LEGACY_KERAS=1``. Where there is a GPU, compile with
``jit_compile=False``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorflow import keras

from elasticrun._keras.collectives import allgather, allreduce, broadcast, reducescatter
from elasticrun._keras.optimizer import DistributedOptimizer as _DistributedOptimizer
from elasticrun._keras.saving import load_model as _load_model
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

from . import callbacks, elastic

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
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_initialized",
    "load_model",
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


def DistributedOptimizer(  # noqa: N802 - Horovod's name
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
    """See :func:`elasticrun.tensorflow.DistributedOptimizer`; the order of arguments is that of Horovod's Keras."""
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


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """A saved model, whose optimizer is distributed and has the state that was saved.

    Args:
        filepath: what ``keras.models.load_model`` takes.
        custom_optimizers: classes of optimizers that are not Keras's own.
        custom_objects: other classes and functions, by name.
        compression: how gradients travel, of :class:`Compression`.
        legacy_opts: taken for Horovod's sake: the optimizer is of the class that was saved.
    """
    return _load_model(keras, filepath, custom_optimizers, custom_objects, compression)
