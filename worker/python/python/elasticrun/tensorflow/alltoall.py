"""alltoall: each rank sends rows to each rank."""

from __future__ import annotations

from typing import Any

import numpy
import tensorflow as tf

from elasticrun import collectives, lifecycle
from elasticrun.process_sets import global_process_set, require_global

from .allgather import _any_rows
from .host import Array, call

__all__ = ["alltoall"]


def alltoall(
    tensor: tf.Tensor | tf.Variable,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
    """Sends a part of the rows of ``tensor`` to each rank, and returns the rows that the ranks sent to this one.

    The gradient is exchanged in the opposite direction.

    Args:
        tensor: at least one dimension; of the same type and, except for the first dimension, the same shape on all ranks.
        splits: number of rows for each rank, in order of rank. Default: the same number for each.
        name: name of the operation in errors.
        ignore_name_scope: accepted for Horovod compatibility, without effect.
        process_set: only :data:`global_process_set`.

    Returns:
        The received rows, in order of rank; with ``splits``, also the number of rows from each rank (int32).

    Raises:
        ValueError: ``splits`` does not fit the rows of ``tensor``.
        WorkersFailed, CollectiveMismatch: as :func:`~elasticrun.tensorflow.allreduce`.
    """
    require_global(process_set)
    # Without splits an empty tensor is passed: a graph outlives the number of ranks, so it cannot contain equal splits.
    sent = tf.zeros([0], tf.int32) if splits is None else tf.cast(splits, tf.int32)

    @tf.custom_gradient
    def exchange(tensor: tf.Tensor) -> Any:
        output, received = _exchange(tensor, sent, name)

        def gradient(upstream: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
            back, _ = _exchange(upstream, received, name)
            back.set_shape(tensor.shape)
            return back

        return (output, received), gradient

    output, received = exchange(tf.convert_to_tensor(tensor))
    return output if splits is None else (output, received)


def _exchange(tensor: tf.Tensor, splits: tf.Tensor, name: str | None) -> list[tf.Tensor]:
    def on_host(array: Array, splits: Array) -> list[Array]:
        if len(splits) == 0:
            size = lifecycle.size()
            if len(array) % size:
                raise ValueError(f"alltoall of {len(array)} rows among {size} ranks: pass splits, or rows that divide")
            splits = numpy.full(size, len(array) // size, numpy.int32)
        output, received = collectives.alltoall(array, splits.tolist(), name)
        return [output, numpy.asarray(received, numpy.int32)]

    outputs = [(tensor.dtype, _any_rows(tensor.shape)), (tf.int32, tf.TensorShape([None]))]
    return call(on_host, [tensor, splits], outputs)
