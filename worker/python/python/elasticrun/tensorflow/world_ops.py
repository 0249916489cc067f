"""Rank and size as tensors. Inside a ``tf.function`` their values are those of the round in which it runs.

``rank()`` and ``size()`` are evaluated when a function is traced, and stay constant in the graph when the workers change.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy
import tensorflow as tf

from elasticrun import lifecycle

from .host import Array, call

__all__ = ["local_rank_op", "local_size_op", "process_set_included_op", "rank_op", "size_op"]


def _number(value: Callable[[], int]) -> tf.Tensor:
    def on_host() -> list[Array]:
        return [numpy.asarray(value(), numpy.int32)]

    return call(on_host, [], [(tf.int32, tf.TensorShape([]))])[0]


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Number of workers of the round (int32)."""
    return _number(lifecycle.size)


def rank_op(name: str | None = None) -> tf.Tensor:
    """Rank of this worker (int32)."""
    return _number(lifecycle.rank)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """Number of workers of the round on this host (int32)."""
    return _number(lifecycle.local_size)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """Slot of this worker on its host (int32)."""
    return _number(lifecycle.local_rank)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """1 (int32): all workers belong to the only process set."""
    return _number(lambda: 1)
