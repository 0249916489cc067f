"""broadcast: copies the tensor of one rank to all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import tensorflow as tf

from elasticrun import collectives, lifecycle
from elasticrun.process_sets import global_process_set, require_global

from .host import Array, call

__all__ = ["broadcast", "broadcast_", "broadcast_variables"]


def broadcast(
    tensor: tf.Tensor | tf.Variable,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
) -> tf.Tensor:
    """Copies the tensor of rank ``root_rank`` to all ranks.

    The gradient of the root's input is the average of the outputs' gradients. Those of other inputs are zero, as in Horovod.

    Args:
        tensor: of the same shape and type on all ranks. Any type except strings.
        root_rank: rank of the tensor to send.
        name: name of the operation in errors.
        ignore_name_scope: accepted for Horovod compatibility, without effect.
        process_set: only :data:`global_process_set`.

    Raises:
        ValueError: there is no rank ``root_rank``.
        WorkersFailed, CollectiveMismatch: as :func:`~elasticrun.tensorflow.allreduce`.
    """
    require_global(process_set)

    @tf.custom_gradient
    def spread(tensor: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            def on_host(array: Array) -> list[Array]:
                average = collectives.allreduce_(array)
                return [average if lifecycle.rank() == root_rank else numpy.zeros_like(average)]

            return call(on_host, [upstream], [(upstream.dtype, upstream.shape)])[0]

        return _broadcast([tensor], root_rank, name)[0], gradient

    return spread(tf.convert_to_tensor(tensor))


def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: Any = global_process_set,
    inplace: bool = False,
) -> None:
    """Copies the values of variables of rank ``root_rank`` to all ranks.

    Args:
        variables: variables of TensorFlow or Keras, the same on all ranks.
        root_rank: rank of the values to copy.
        process_set: only :data:`global_process_set`.
        inplace: accepted for Horovod compatibility, without effect. Variables are always assigned in place.

    Raises:
        ValueError: there is no rank ``root_rank``.
        WorkersFailed, CollectiveMismatch: as :func:`~elasticrun.tensorflow.allreduce`.
    """
    require_global(process_set)
    variables = list(variables)
    values = _broadcast([tf.convert_to_tensor(variable) for variable in variables], root_rank, "variables")
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> list[tf.Tensor]:
    """Like :func:`broadcast_variables`, and returns the values."""
    broadcast_variables(variables, root_rank, process_set)
    return [tf.convert_to_tensor(variable) for variable in variables]


def _broadcast(tensors: Sequence[tf.Tensor], root: int, name: str | None) -> list[tf.Tensor]:
    if not tensors:
        return []

    def on_host(*arrays: Array) -> list[Array]:
        handles = [collectives.broadcast_async_(array, root, name) for array in arrays]
        return [handle.wait() for handle in handles]

    return call(on_host, tensors, [(tensor.dtype, tensor.shape) for tensor in tensors])
