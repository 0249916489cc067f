"""Collectives on arrays of the kinds that :mod:`elasticrun.arrays` lists.

All ranks of the round make the same calls in the same order, with arrays of the same type and shape. A different call raises
:class:`~elasticrun.errors.CollectiveMismatch`, which names rank and array. Functions named ``..._async`` return a
:class:`~elasticrun.Handle` immediately. Functions whose name ends in ``_`` work in place.

Outside of :func:`elasticrun.elastic.run`, the first collective of a process joins the first round and waits for it.

Each collective raises :class:`~elasticrun.errors.NotInitialized` before ``init()``,
:class:`~elasticrun.errors.ForkedError` in a forked child, :class:`~elasticrun.errors.WorkersFailed` when the round is
over, and ``TypeError`` for an argument that is not an array.
"""

from .exchange import (
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
)
from .objects import allgather_object, broadcast_object
from .reduce import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    reducescatter,
    reducescatter_async,
)

__all__ = [
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
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "reducescatter",
    "reducescatter_async",
]
