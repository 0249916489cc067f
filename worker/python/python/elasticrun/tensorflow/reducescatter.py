"""reducescatter: combines tensors element by element; each rank gets a part of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from elasticrun import collectives, lifecycle
from elasticrun.process_sets import global_process_set, require_global
from elasticrun.reductions import Average, Reduction, Sum, op_of, reduction_of

from .allgather import _any_rows
from .compression import Compression
from .host import Array, call

__all__ = ["grouped_reducescatter", "reducescatter"]


def reducescatter(
    tensor: tf.Tensor | tf.Variable,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: Reduction = Average,
    name: str | None = None,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
) -> tf.Tensor:
    """Combines the tensors of all ranks like ``allreduce``, and returns to each rank its rows.

    The gradient is the same as in Horovod: the outputs' gradients of all ranks, times ``size()`` for a sum.

    Args:
        tensor: at least one dimension; of the same shape and type on all ranks. If the rows do not divide evenly, the
            first ranks get one more.
        device_dense: accepted for Horovod compatibility, without effect.
        compression: compression of the tensor, from :class:`Compression`.
        op: Average or Sum.
        name: name of the operation in errors.
        process_set: only :data:`global_process_set`.
        prescale_factor: factor of the inputs.
        postscale_factor: factor of the results.
        ignore_name_scope: accepted for Horovod compatibility, without effect.

    Raises:
        ValueError: another ``op``, or the tensor has no dimension.
        WorkersFailed, CollectiveMismatch: as :func:`~elasticrun.tensorflow.allreduce`.
    """
    require_global(process_set)
    how = reduction_of(op)
    if how not in (Average, Sum):
        raise ValueError(f"reducescatter with op {how.name}: use Average or Sum")
    sent, context = compression.compress(tf.convert_to_tensor(tensor))
    if sent.shape.rank == 0:
        raise ValueError("reducescatter of a tensor without dimensions: reshape it to (1,)")
    factor = prescale_factor * postscale_factor

    @tf.custom_gradient
    def scatter(tensor: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            def on_host(array: Array) -> list[Array]:
                scaled = array * (factor * (lifecycle.size() if how == Sum else 1))
                return [collectives.allgather(scaled.astype(array.dtype), name)]

            return call(on_host, [upstream], [(tensor.dtype, tensor.shape)])[0]

        def on_host(array: Array) -> list[Array]:
            if factor != 1.0:
                array = (array * factor).astype(array.dtype)
            return [collectives.reducescatter(array, op_of(how), name)]

        return call(on_host, [tensor], [(tensor.dtype, _any_rows(tensor.shape))])[0], gradient

    return compression.decompress(scatter(sent), context)


def grouped_reducescatter(
    tensors: Sequence[tf.Tensor | tf.Variable],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: Reduction = Average,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
) -> list[tf.Tensor]:
    """:func:`reducescatter` of several tensors."""
    return [
        reducescatter(tensor, device_dense, compression, op, None, process_set, prescale_factor, postscale_factor)
        for tensor in tensors
    ]
