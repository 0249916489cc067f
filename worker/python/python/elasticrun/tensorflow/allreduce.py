"""allreduce: combines the tensors of all ranks element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from elasticrun import collectives
from elasticrun.process_sets import global_process_set, require_global
from elasticrun.reductions import Adasum, Average, Max, Min, Product, Reduction, op_of, reduction_of

from .adasum import combine
from .allgather import allgather
from .compression import Compression
from .host import Array, call
from .world_ops import size_op

__all__ = ["allreduce", "grouped_allreduce"]

Dense: TypeAlias = "tf.Tensor | tf.Variable"
Gradient: TypeAlias = "tf.Tensor | tf.IndexedSlices"


def allreduce(
    tensor: Dense | tf.IndexedSlices,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: Any = global_process_set,
    ignore_name_scope: bool = False,
) -> Gradient:
    """Combines the tensors of all ranks element by element into a new one.

    Sums and averages are differentiable: the gradient of the input is the same reduction of the outputs' gradients.

    Args:
        tensor: any shape, the same on all ranks. Rows of a larger tensor (``tf.IndexedSlices``) may differ between ranks:
            each rank gets the rows of all.
        average: replaced by ``op``: True is Average, False is Sum.
        device_dense, device_sparse, ignore_name_scope: accepted for Horovod compatibility, without effect. Tensors are
            sent from host memory.
        compression: compression of the tensor, from :class:`Compression`.
        op: Average (the default), Sum, Adasum, Min, Max or Product.
        prescale_factor: factor of the inputs.
        postscale_factor: factor of the results.
        name: name of the operation in errors.
        process_set: only :data:`global_process_set`.

    Raises:
        WorkersFailed: the round is over. A graph raises an error of TensorFlow instead, which
            :func:`elasticrun.tensorflow.elastic.run` recognises.
        CollectiveMismatch: ranks made different calls.
        NotImplementedError: another process set, or a reduction of ``tf.IndexedSlices`` other than a sum or average.
    """
    require_global(process_set)
    how = reduction_of(op, average)
    scale = (prescale_factor, postscale_factor)
    if isinstance(tensor, tf.IndexedSlices):
        return _rows(tensor, how, scale, name)
    return _together([tf.convert_to_tensor(tensor)], how, scale, compression, name)[0]


def grouped_allreduce(
    tensors: Sequence[Dense | tf.IndexedSlices],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Gradient]:
    """:func:`allreduce` of several tensors, with one operation for all dense tensors of a type."""
    require_global(process_set)
    how = reduction_of(op, average)
    scale = (prescale_factor, postscale_factor)
    dense = [index for index, tensor in enumerate(tensors) if not isinstance(tensor, tf.IndexedSlices)]
    results: list[Gradient] = list(tensors)
    combined = _together([tf.convert_to_tensor(tensors[index]) for index in dense], how, scale, compression, name)
    for index, result in zip(dense, combined, strict=True):
        results[index] = result
    for index, tensor in enumerate(tensors):
        if isinstance(tensor, tf.IndexedSlices):
            results[index] = _rows(tensor, how, scale, name)
    return results


def _together(
    tensors: Sequence[tf.Tensor],
    op: Reduction,
    scale: tuple[float, float],
    compression: Any,
    name: str | None,
) -> list[tf.Tensor]:
    if not tensors:
        return []
    pairs = [compression.compress(tensor) for tensor in tensors]
    reduced = _differentiable(op, scale, name)(*(sent for sent, _ in pairs))
    if len(pairs) == 1:
        reduced = [reduced]
    return [compression.decompress(tensor, context) for tensor, (_, context) in zip(reduced, pairs, strict=True)]


def _differentiable(op: Reduction, scale: tuple[float, float], name: str | None) -> Any:
    """The reduction as a function of tensors, with its gradient."""

    @tf.custom_gradient
    def reduce(*tensors: tf.Tensor) -> Any:
        def gradient(*upstream: tf.Tensor) -> Any:
            if op in (Min, Max, Product):
                raise NotImplementedError(
                    f"the gradient of an allreduce by {op.name} is not offered: use Average or Sum"
                )
            return _reduce(upstream, op, scale, name)

        reduced = _reduce(tensors, op, scale, name)
        return (reduced if len(reduced) > 1 else reduced[0]), gradient

    return reduce


def _reduce(
    tensors: Sequence[tf.Tensor], op: Reduction, scale: tuple[float, float], name: str | None
) -> list[tf.Tensor]:
    def on_host(*arrays: Array) -> list[Array]:
        if op == Adasum:
            return combine(arrays, *scale, name)
        return collectives.grouped_allreduce_(
            arrays, op_of(op), name, prescale_factor=scale[0], postscale_factor=scale[1]
        )

    return call(on_host, tensors, [(tensor.dtype, tensor.shape) for tensor in tensors])


def _rows(slices: tf.IndexedSlices, op: Reduction, scale: tuple[float, float], name: str | None) -> tf.IndexedSlices:
    """The rows of all ranks. Rows with the same index are summed when they are used."""
    if op not in (Average, Reduction.Sum):
        raise NotImplementedError(
            f"{op.name} of tf.IndexedSlices is not offered: use Average or Sum, or sparse_as_dense=True"
        )
    values = slices.values * tf.cast(scale[0] * scale[1], slices.values.dtype)
    values = allgather(values, name)
    if op == Average:
        values /= tf.cast(size_op(), values.dtype)
    return tf.IndexedSlices(values, allgather(slices.indices, name), slices.dense_shape)
