"""Distributed training on hosts that can join or leave during the job.

Start a script with ``elasticrun -np 4 python train.py``::

    import elasticrun

    elasticrun.init()
    state = elasticrun.ArrayState(weights=weights, step=0)

    @elasticrun.elastic.run
    def train(state):
        while state.step < 1000:
            gradient = elasticrun.allreduce(gradient_of(state.weights))
            state.weights -= 0.01 * gradient
            state.step += 1
            state.commit()

    train(state)

It needs only the standard library. Each framework has its own module: :mod:`elasticrun.torch`,
:mod:`elasticrun.tensorflow`, :mod:`elasticrun.keras`.
"""

from __future__ import annotations

from . import elastic, errors, notifications
from .collectives import (
    allgather,
    allgather_async,
    allgather_object,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    broadcast_object,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    reducescatter,
    reducescatter_async,
)
from .elastic import ArrayState, JaxState, ObjectState, State
from .errors import ElasticrunError, HostsUpdated, WorkersFailed
from .handle import Handle, poll, synchronize
from .launch import run
from .lifecycle import (
    cross_rank,
    cross_size,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    set_collective_timeout,
    shutdown,
    size,
    world,
)
from .ops import Average, Max, Min, Product, ReduceOp, Sum
from .sampler import ElasticSampler

__all__ = [
    "ArrayState",
    "Average",
    "ElasticSampler",
    "ElasticrunError",
    "Handle",
    "HostsUpdated",
    "JaxState",
    "Max",
    "Min",
    "ObjectState",
    "Product",
    "ReduceOp",
    "State",
    "Sum",
    "WorkersFailed",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "cross_rank",
    "cross_size",
    "elastic",
    "errors",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "notifications",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "run",
    "set_collective_timeout",
    "shutdown",
    "size",
    "synchronize",
    "world",
]
