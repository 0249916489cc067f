"""Batch normalisation with the mean and variance of all ranks' batches."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from elasticrun.reductions import Sum

from .allreduce import allreduce

__all__ = ["SyncBatchNormalization"]

_IS_KERAS_2 = hasattr(tf.keras.layers.BatchNormalization, "_fused_can_be_used")


def _combined(mean: tf.Tensor, variance: tf.Tensor, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance over all ranks, each weighted by its ``count`` of elements."""
    dtype = mean.dtype
    mean, variance = tf.cast(mean, tf.float32), tf.cast(variance, tf.float32)
    count = tf.cast(count, tf.float32)
    sums = tf.stack([mean * count, (variance + tf.square(mean)) * count, tf.ones_like(mean) * count])
    total, squares, counts = tf.unstack(allreduce(sums, op=Sum, name="batch normalisation"))
    mean = total / counts
    return tf.cast(mean, dtype), tf.cast(squares / counts - tf.square(mean), dtype)


def _count(inputs: tf.Tensor, channels: tf.Tensor) -> tf.Tensor:
    """Number of elements of each channel."""
    return tf.size(inputs) / tf.size(channels)


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """``tf.keras.layers.BatchNormalization`` with statistics over the batches of all ranks during training.

    Ranks may have batches of different sizes; each element has the same weight. All ranks call the layer. It takes the
    arguments of the Keras layer, except ``fused=True`` of tf_keras.

    Raises:
        ValueError: ``fused=True``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if _IS_KERAS_2:
            fused = kwargs.setdefault("fused", False)
            if fused is not False:
                raise ValueError(f"SyncBatchNormalization with fused={fused}: only False is possible")
        super().__init__(*args, **kwargs)

    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        mean, variance = super()._moments(inputs, *args, **kwargs)
        # The argument after the input is the mask in Keras 3, and the axes in tf_keras.
        mask = kwargs.get("mask") if _IS_KERAS_2 else args[0]
        elements = _count(inputs, mean)
        if mask is not None:
            # Masked elements do not count.
            share = tf.math.count_nonzero(mask) / tf.size(mask, tf.int64)
            elements *= tf.cast(share, elements.dtype)
        return _combined(mean, variance, elements)
