"""allgather: concatenates the tensors of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import tensorflow as tf

from elasticrun import collectives, lifecycle
from elasticrun.process_sets import global_process_set, require_global

from .host import Array, call

__all__ = ["allgather", "grouped_allgather"]


def allgather(
    tensor: tf.Tensor | tf.Variable,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
) -> tf.Tensor:
    """Concatenates the tensors of all ranks along the first dimension, in order of rank.

    The gradient of the input is its part of the average gradient of the outputs, as in Horovod.

    Args:
        tensor: at least one dimension; of the same type and, except for the first dimension, the same shape on all ranks.
        name: name of the operation in errors.
        ignore_name_scope: accepted for Horovod compatibility, without effect.
        process_set: only :data:`global_process_set`.

    Raises:
        ValueError: the tensor has no dimension.
        WorkersFailed, CollectiveMismatch: as :func:`~elasticrun.tensorflow.allreduce`.
    """
    require_global(process_set)
    tensor = tf.convert_to_tensor(tensor)
    if tensor.shape.rank == 0:
        raise ValueError("allgather of a tensor without dimensions: reshape it to (1,)")
    return _gather(tensor, name)


def grouped_allgather(
    tensors: Sequence[tf.Tensor | tf.Variable],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
) -> list[tf.Tensor]:
    """:func:`allgather` of several tensors."""
    return [allgather(tensor, name, ignore_name_scope, process_set) for tensor in tensors]


def _gather(tensor: tf.Tensor, name: str | None) -> tf.Tensor:
    @tf.custom_gradient
    def gather(tensor: tf.Tensor) -> Any:
        rows = tf.shape(tensor, tf.int64)[0]

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            (part,) = call(_own_part, [upstream, rows], [(tensor.dtype, tensor.shape)])
            return part

        def on_host(array: Array) -> list[Array]:
            return [collectives.allgather(array, name)]

        (joined,) = call(on_host, [tensor], [(tensor.dtype, _any_rows(tensor.shape))])
        return joined, gradient

    return gather(tensor)


def _own_part(upstream: Array, rows: Array) -> list[Array]:
    """This rank's rows of the average over all ranks."""
    average = collectives.allreduce_(upstream)
    counts = collectives.allgather(numpy.reshape(rows, 1))
    rank = lifecycle.rank()
    first = int(counts[:rank].sum())
    return [average[first : first + int(counts[rank])]]


def _any_rows(shape: tf.TensorShape) -> tf.TensorShape:
    """The shape with any first dimension."""
    if shape.rank is None:
        return shape
    return tf.TensorShape([None, *shape[1:]])
