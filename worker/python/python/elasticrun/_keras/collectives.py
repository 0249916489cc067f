"""Collectives with the arguments of Horovod's Keras, on values that TensorFlow converts to tensors. For use outside of graphs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from elasticrun import tensorflow as hvd
from elasticrun.reductions import Average, Reduction
from elasticrun.tensorflow.compression import Compression

__all__ = ["allgather", "allreduce", "broadcast", "reducescatter"]


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Reduction | None = None,
    compression: Any = Compression.none,
) -> tf.Tensor:
    """Combines the values of all ranks: see :func:`elasticrun.tensorflow.allreduce`."""
    return hvd.allreduce(
        tf.convert_to_tensor(value),
        average=average,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        compression=compression,
        name=name,
    )


def allgather(value: Any, name: str | None = None) -> tf.Tensor:
    """Concatenates the values of all ranks: see :func:`elasticrun.tensorflow.allgather`."""
    return hvd.allgather(tf.convert_to_tensor(value), name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> tf.Tensor:
    """The value of rank ``root_rank``: see :func:`elasticrun.tensorflow.broadcast`."""
    return hvd.broadcast(tf.convert_to_tensor(value), root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: Reduction = Average) -> tf.Tensor:
    """This rank's rows of the combined values: see :func:`elasticrun.tensorflow.reducescatter`."""
    return hvd.reducescatter(tf.convert_to_tensor(value), op=op, name=name)
