"""DistributedOptimizer: an optimizer of Keras whose gradients are those of all ranks."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from elasticrun.process_sets import global_process_set, require_global
from elasticrun.reductions import Average, Reduction, Sum, reduction_of
from elasticrun.tensorflow.compression import Compression
from elasticrun.tensorflow.gradients import Accumulation, Groups, Reducer, reducer

from . import kinds

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
    """An optimizer of ``optimizer``'s class and settings that applies the gradients of all ranks.

    ``model.compile()`` takes it, and ``apply_gradients()`` (``apply()``) works as ever; both combine the
    gradients first, all as one operation. A model that is saved with it is loaded without elasticrun, too.
    With the global policy ``mixed_float16`` the loss is scaled here, so that all ranks skip the same steps.

    Args:
        optimizer: an optimizer of Keras 3 or tf_keras. Use only the one that is returned; the two share variables.
        name, use_locking, device_dense, device_sparse, scale_local_gradients: taken for Horovod's sake, without
            effect.
        compression: how gradients travel, of :class:`~elasticrun.tensorflow.Compression`.
        sparse_as_dense: whether ``tf.IndexedSlices`` (of embeddings) travel as dense tensors.
        backward_passes_per_step: steps whose gradients add up before they are combined and applied. What was
            added is forgotten when a round begins.
        op: Average or Sum.
        gradient_predivide_factor: an average divides by it before the sum, and by the rest after it.
        average_aggregated_gradients: whether added gradients are divided by ``backward_passes_per_step``.
        num_groups: as an integer ``groups``.
        groups: into how many operations gradients are put, or lists of variables that share one.
        process_set: only :data:`global_process_set`.

    Raises:
        TypeError: ``optimizer`` is no optimizer.
        ValueError: it is distributed already, or an argument is out of its range.
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
    """Forgets the gradients that a distributed optimizer has added up."""
    if isinstance(optimizer, _Distributed):
        optimizer._elasticrun_begin_round()


class _Distributed:
    """In front of the class of an optimizer. Settings are the class's, so that copies of the optimizer have them."""

    _elasticrun_reduce: Reducer
    _elasticrun_passes: tuple[int, bool]

    def _elasticrun_apply(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        apply: Callable[[list[Any]], object],
    ) -> None:
        """Applies the gradients of all ranks; after the last of several passes, if so wished."""
        reduce = type(self)._elasticrun_reduce
        passes, average = type(self)._elasticrun_passes
        if passes == 1:
            apply(reduce(gradients, variables))
            return
        kinds.build(self, variables)
        # Not by setattr, with which Keras would track it.
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
        """The variables; scripts of Keras 2 call it."""
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
    """A list that gives itself when it is called."""

    def __call__(self) -> _Callable:
        return self


def _distributed(optimizer: Any, reduce: Reducer, passes: int, average: bool) -> Any:
    kind = type(optimizer)
    front = _Keras3 if kinds.is_keras3(optimizer) else _Keras2

    def body(namespace: dict[str, Any]) -> None:
        # Named as the class behind it, so that a saved model asks for that one.
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
    """The optimizer, within one that scales losses where ``model.compile()`` would put it into one.

    That one looks whether gradients are finite before it applies them, so it must see those of all ranks.
    """
    if kinds.is_keras3(optimizer):
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
