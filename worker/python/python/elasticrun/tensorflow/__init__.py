"""elasticrun for TensorFlow: Horovod's interface, for jobs whose hosts can join or leave.

::

    import elasticrun.tensorflow as hvd

    hvd.init()
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    @hvd.elastic.run
    def train(state):
        for state.batch in range(state.batch, 1000):
            step(*next(batches))
            state.commit()

    train(state)

All ranks call collectives in the same order, either eagerly or inside a ``tf.function``, where they run in program order.
Tensors are sent from host memory. A function that XLA compiles cannot call collectives: leave ``jit_compile`` off, also in
``model.compile()`` on a GPU.
"""

from __future__ import annotations

from typing import Any

from elasticrun._keras.optimizer import DistributedOptimizer
from elasticrun.collectives import barrier
from elasticrun.errors import HostsUpdated as HostsUpdatedInterrupt
from elasticrun.errors import WorkersFailed as HorovodInternalError
from elasticrun.lifecycle import (
    cross_rank,
    cross_size,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from elasticrun.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from elasticrun.reductions import Adasum, Average, Max, Min, Product, Sum

from . import elastic
from .allgather import allgather, grouped_allgather
from .allreduce import allreduce, grouped_allreduce
from .alltoall import alltoall
from .broadcast import broadcast, broadcast_, broadcast_variables
from .compression import Compression
from .features import (
    ccl_built,
    check_num_rank_power_of_2,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    is_homogeneous,
    join,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
    start_timeline,
    stop_timeline,
)
from .functions import (
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
)
from .reducescatter import grouped_reducescatter, reducescatter
from .tape import DistributedGradientTape
from .world_ops import local_rank_op, local_size_op, process_set_included_op, rank_op, size_op

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "ccl_built",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]


def __getattr__(name: str) -> Any:
    # The import of Keras takes about a second, and other names do not need it.
    if name == "SyncBatchNormalization":
        from .sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
