"""DistributedOptimizer: a Keras optimizer that applies the combined gradients of all ranks."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from elasticrun.process_sets import global_process_set, require_global
from elasticrun.reductions import Average, Reduction, Sum, reduction_of
from elasticrun.tensorflow.compression import Compression
from elasticrun.tensorflow.gradients import Accumulation, Groups, Reducer, reducer

from . import keras_versions

__all__ = ["DistributedOptimizer", "begin_round", "is_distributed"]


def DistributedOptimizer(  # Horovod's name
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: Reduction = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: Any = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """An optimizer with the class and settings of ``optimizer`` that applies the combined gradients of all ranks.

    ``model.compile()`` accepts it. ``apply_gradients()`` (or ``apply()``) first combines all gradients in one operation. A model
    that was saved with it can be loaded without elasticrun. With the global policy ``mixed_float16``, this function adds the
    loss scaling, so that all ranks skip the same steps.

    Args:
        optimizer: an optimizer of Keras 3 or tf_keras. Use only the returned one; the two share variables.
        name, use_locking, device_dense, device_sparse, scale_local_gradients: accepted for Horovod compatibility, without
            effect.
        compression: compression of gradients, from :class:`~elasticrun.tensorflow.Compression`.
        sparse_as_dense: whether ``tf.IndexedSlices`` (of embeddings) are sent as dense tensors.
        backward_passes_per_step: steps whose gradients are accumulated before they are combined and applied. A new round
            discards accumulated gradients.
        op: Average or Sum.
        gradient_predivide_factor: for averages: divisor before the sum. The division is completed after it.
        average_aggregated_gradients: whether accumulated gradients are divided by ``backward_passes_per_step``.
        num_groups: same as an integer ``groups``.
        groups: number of operations for all gradients, or lists of variables that share an operation.
        process_set: only :data:`global_process_set`.

    Raises:
        TypeError: ``optimizer`` is not an optimizer.
        ValueError: ``optimizer`` is already distributed, or an argument is out of range.
    """
    require_global(process_set)
    how = reduction_of(op)
    if how not in (Average, Sum):
        raise ValueError(f"op is {how.name}: DistributedOptimizer takes Average or Sum")
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}: it must be 1 or more")
    if isinstance(optimizer, type) or not hasattr(optimizer, "apply_gradients"):
        raise TypeError(f"{optimizer!r} is no optimizer: pass one of Keras, such as keras.optimizers.SGD(0.01)")
    if isinstance(optimizer, _Distributed):
        raise ValueError("the optimizer is distributed already: wrap it once")
    reduce = reducer(how, compression, gradient_predivide_factor, sparse_as_dense, num_groups, groups)
    return _distributed(_scaling_losses(optimizer), reduce, backward_passes_per_step, average_aggregated_gradients)


def is_distributed(optimizer: Any) -> bool:
    """Whether the optimizer combines the gradients of all ranks."""
    return isinstance(optimizer, _Distributed)


def begin_round(optimizer: Any) -> None:
    """Discards the gradients that a distributed optimizer has accumulated."""
    if isinstance(optimizer, _Distributed):
        optimizer._elasticrun_begin_round()


class _Distributed:
    """Base that precedes the class of an optimizer. Settings are class attributes, so that copies of the optimizer have them."""

    _elasticrun_reduce: Reducer
    _elasticrun_passes: tuple[int, bool]

    def _elasticrun_apply(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        apply: Callable[[list[Any]], object],
    ) -> None:
        """Applies the gradients of all ranks. With several passes per step: after the last pass."""
        reduce = type(self)._elasticrun_reduce
        passes, average = type(self)._elasticrun_passes
        if passes == 1:
            apply(reduce(gradients, variables))
            return
        keras_versions.build(self, variables)
        # Bypasses setattr, with which Keras would track the attribute.
        accumulation = vars(self).setdefault("_elasticrun_accumulation", Accumulation(passes, average))
        accumulation.add(gradients, lambda sums: apply(reduce(sums, variables)))

    def _elasticrun_begin_round(self) -> None:
        accumulation = vars(self).get("_elasticrun_accumulation")
        if accumulation is not None:
            accumulation.reset()


class _Keras3(_Distributed):
    def apply(self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        """Combines the gradients of all ranks, then applies them."""
        known: Any = trainable_variables
        variables = list(self._trainable_variables if known is None else known)  # type: ignore[attr-defined]
        base: Any = super()
        self._elasticrun_apply(list(grads), variables, lambda combined: base.apply(combined, variables))

    @property
    def variables(self) -> Any:
        """The variables, as a list that can also be called, as scripts for Keras 2 do."""
        return _Callable(super().variables)  # type: ignore[misc]


class _Keras2(_Distributed):
    def apply_gradients(self, grads_and_vars: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        """Combines the gradients of all ranks, then applies them."""
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        base: Any = super()

        def apply(combined: list[Any]) -> None:
            base.apply_gradients(list(zip(combined, variables, strict=True)), *args, **kwargs)

        self._elasticrun_apply([gradient for gradient, _ in pairs], variables, apply)
        return getattr(self, "iterations", None)


class _Callable(list[Any]):
    """A list that returns itself when it is called."""

    def __call__(self) -> _Callable:
        return self


def _distributed(optimizer: Any, reduce: Reducer, passes: int, average: bool) -> Any:
    kind = type(optimizer)
    front = _Keras3 if keras_versions.is_keras3(optimizer) else _Keras2

    def body(namespace: dict[str, Any]) -> None:
        # The name of the original class, so that a saved model refers to that class.
        namespace["__module__"] = kind.__module__
        namespace["__qualname__"] = kind.__qualname__
        namespace["__doc__"] = kind.__doc__
        namespace["_elasticrun_reduce"] = reduce
        namespace["_elasticrun_passes"] = (passes, average)

    distributed = types.new_class(kind.__name__, (front, kind), exec_body=body)
    wrapped: Any = object.__new__(distributed)
    vars(wrapped).update(vars(optimizer))
    return wrapped


def _scaling_losses(optimizer: Any) -> Any:
    """Wraps the optimizer for loss scaling if ``model.compile()`` would do so.

    The wrapper checks whether gradients are finite before it applies them, so it must see the combined gradients of all ranks.
    """
    if keras_versions.is_keras3(optimizer):
        import keras

        policy, scaling = keras.config.dtype_policy(), keras.optimizers.LossScaleOptimizer
    elif type(optimizer).__module__.startswith("tf_keras."):
        import tf_keras

        policy = tf_keras.mixed_precision.global_policy()
        scaling = tf_keras.mixed_precision.LossScaleOptimizer
    else:
        return optimizer
    if policy.name != "mixed_float16" or isinstance(optimizer, scaling):
        return optimizer
    return scaling(optimizer)
