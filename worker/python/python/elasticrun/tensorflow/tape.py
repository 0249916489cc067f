"""DistributedGradientTape: a tape that combines the gradients of all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from elasticrun.process_sets import global_process_set, require_global
from elasticrun.reductions import Average, Reduction, reduction_of

from .compression import Compression
from .gradients import Groups, Reducer, reducer

__all__ = ["DistributedGradientTape"]


def DistributedGradientTape(  # Horovod's name
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Reduction = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: Any = global_process_set,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """Wraps ``gradtape`` in a tape whose ``gradient()`` combines the gradients of all ranks.

    All gradients are combined in one operation. ``jacobian()`` and ``batch_jacobian()`` return the values of this rank.

    Args:
        gradtape: the tape to wrap, during or after recording.
        device_dense, device_sparse, scale_local_gradients: accepted for Horovod compatibility, without effect.
        compression: compression of gradients, from :class:`Compression`.
        sparse_as_dense: whether ``tf.IndexedSlices`` are sent as dense tensors.
        op: Average, Sum or Adasum.
        gradient_predivide_factor: for averages: divisor before the sum. The division is completed after it.
        num_groups: same as an integer ``groups``.
        groups: number of operations for all gradients, or lists of variables that share an operation.
        process_set: only :data:`global_process_set`.

    Raises:
        ValueError: an argument is out of range.
    """
    require_global(process_set)
    how = reducer(reduction_of(op), compression, gradient_predivide_factor, sparse_as_dense, num_groups, groups)
    return _DistributedTape(gradtape, how)


class _DistributedTape(tf.GradientTape):
    """Delegates recording to the wrapped tape."""

    def __init__(self, tape: tf.GradientTape, reduce: Reducer) -> None:
        super().__init__(persistent=tape._persistent)
        self._inner = tape
        self._reduce = reduce

    def __enter__(self) -> _DistributedTape:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)

    def watch(self, tensor: Any) -> None:
        """See ``tf.GradientTape``."""
        self._inner.watch(tensor)

    @contextmanager
    def stop_recording(self) -> Iterator[None]:
        """See ``tf.GradientTape``."""
        with self._inner.stop_recording():
            yield

    def reset(self) -> None:
        """See ``tf.GradientTape``."""
        self._inner.reset()

    def watched_variables(self) -> Any:
        """See ``tf.GradientTape``."""
        return self._inner.watched_variables()

    def jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """See ``tf.GradientTape``; of this rank."""
        return self._inner.jacobian(*args, **kwargs)

    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """See ``tf.GradientTape``; of this rank."""
        return self._inner.batch_jacobian(*args, **kwargs)

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any) -> Any:
        """The gradients of all ranks, combined, in the structure of ``sources``."""
        gradients = self._inner.gradient(target, sources, output_gradients, *args, **kwargs)
        return tf.nest.pack_sequence_as(sources, self._reduce(tf.nest.flatten(gradients), tf.nest.flatten(sources)))
