"""Combines the gradients of all ranks, for distributed tapes and distributed optimizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tensorflow as tf

from elasticrun.reductions import Average, Reduction

from .allreduce import Gradient, grouped_allreduce
from .compression import Compression

__all__ = ["Accumulation", "Reducer", "reducer"]

#: Variables whose gradients share an operation: the number of operations, or lists of variables.
Groups: TypeAlias = int | Sequence[Sequence[Any]] | None


@dataclass(frozen=True)
class Reducer:
    """Combines gradients with fixed settings.

    Attributes:
        op: the reduction.
        compression: compression of gradients.
        predivide: for averages: divisor before the sum. The division is completed after it.
        sparse_as_dense: whether sparse gradients are sent as dense tensors.
        groups: see :data:`Groups`. None: one operation for all.
    """

    op: Reduction = Average
    compression: Any = Compression.none
    predivide: float = 1.0
    sparse_as_dense: bool = False
    groups: Groups = None

    def __call__(self, gradients: Sequence[Gradient | None], variables: Sequence[Any]) -> list[Gradient | None]:
        """The combined gradients. None stays None, so all ranks must lack the gradients of the same variables."""
        result: list[Gradient | None] = list(gradients)
        if self.sparse_as_dense:
            result = [dense(gradient) for gradient in result]
        for group in self._groups(variables):
            present = [index for index in group if result[index] is not None]
            combined = grouped_allreduce(
                [result[index] for index in present],
                op=self.op,
                compression=self.compression,
                prescale_factor=1.0 / self.predivide,
                postscale_factor=self.predivide,
                name="gradients",
            )
            for index, gradient in zip(present, combined, strict=True):
                result[index] = gradient
        return result

    def _groups(self, variables: Sequence[Any]) -> list[list[int]]:
        """Indices of variables that share an operation."""
        indices = list(range(len(variables)))
        if self.groups is None:
            return [indices]
        if isinstance(self.groups, int):
            share = -(-len(indices) // self.groups)
            return [indices[start : start + share] for start in range(0, len(indices), share)]
        index_of = {id(variable): index for index, variable in enumerate(variables)}
        groups = [[index_of[id(variable)] for variable in group if id(variable) in index_of] for group in self.groups]
        named = {index for group in groups for index in group}
        return [*groups, [index for index in indices if index not in named]]


def reducer(
    op: Reduction,
    compression: Any,
    predivide: float,
    sparse_as_dense: bool,
    num_groups: int,
    groups: Groups,
) -> Reducer:
    """Creates a reducer from a user's arguments.

    Raises:
        ValueError: an argument is out of range.
    """
    if predivide != 1.0 and op != Average:
        raise ValueError(f"gradient_predivide_factor is for op=Average, not {op.name}: it splits the division")
    if predivide <= 0.0:
        raise ValueError(f"gradient_predivide_factor is {predivide}: it must be above 0")
    groups = groups if groups is not None else (num_groups or None)
    if isinstance(groups, int) and groups < 1:
        raise ValueError(f"groups is {groups}: it must be 1 or more, or lists of variables")
    return Reducer(op, compression, predivide, sparse_as_dense, groups)


class Accumulation:
    """Accumulates the gradients of several backward passes before they are combined and applied."""

    def __init__(self, passes: int, average: bool) -> None:
        self._passes = passes
        self._average = average
        self._sums: dict[int, tf.Variable] = {}
        self._count: tf.Variable | None = None

    def add(
        self,
        gradients: Sequence[Gradient | None],
        then: Callable[[list[tf.Tensor | None]], object],
    ) -> None:
        """Adds ``gradients``. After the last pass it calls ``then`` with the sums, and resets them."""
        present = {index: dense(gradient) for index, gradient in enumerate(gradients) if gradient is not None}
        self._make(present)
        for index, gradient in present.items():
            self._sums[index].assign_add(gradient)
        assert self._count is not None, "made above"
        count = self._count.assign_add(1)

        def last() -> tf.Tensor:
            share = self._passes if self._average else 1
            sums = {index: self._sums[index].read_value() / share for index in present}
            then([sums.get(index) for index in range(len(gradients))])
            self.reset()
            return tf.constant(True)

        tf.cond(count >= self._passes, last, lambda: tf.constant(False))

    def reset(self) -> None:
        """Discards the sums, as all ranks do at the start of a round."""
        for variable in self._sums.values():
            variable.assign(tf.zeros_like(variable))
        if self._count is not None:
            self._count.assign(0)

    def _make(self, gradients: dict[int, tf.Tensor]) -> None:
        # Variables are created outside of the function that is being traced.
        with tf.init_scope():
            if self._count is None:
                self._count = tf.Variable(0, trainable=False, dtype=tf.int64, name="backward_passes")
            for index, gradient in gradients.items():
                if index not in self._sums:
                    self._sums[index] = tf.Variable(
                        tf.zeros(gradient.shape, gradient.dtype), trainable=False, name=f"gradient_{index}"
                    )


def dense(gradient: Gradient | None) -> tf.Tensor | None:
    """The gradient as a dense tensor."""
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient
