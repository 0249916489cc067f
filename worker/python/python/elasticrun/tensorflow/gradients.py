"""Gradients of all ranks, combined: what a distributed tape and a distributed optimizer do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tensorflow as tf

from elasticrun.reductions import Average, Reduction

from .allreduce import Gradient, grouped_allreduce
from .compression import Compression

__all__ = ["Accumulation", "Reducer", "reducer"]

#: Variables that travel together, for ``groups``: so many parts, or lists of them.
Groups: TypeAlias = int | Sequence[Sequence[Any]] | None


@dataclass(frozen=True)
class Reducer:
    """How gradients are combined.

    Attributes:
        op: the reduction.
        compression: how they travel.
        predivide: an average divides by it before the sum, and by the rest after it.
        sparse_as_dense: whether rows of a larger gradient travel as all of it.
        groups: see :data:`Groups`; without them all travel together.
    """

    op: Reduction = Average
    compression: Any = Compression.none
    predivide: float = 1.0
    sparse_as_dense: bool = False
    groups: Groups = None

    def __call__(self, gradients: Sequence[Gradient | None], variables: Sequence[Any]) -> list[Gradient | None]:
        """The combined gradients; none stays none, so all ranks must have none of the same variables."""
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
        """Indices of variables that travel together."""
        indices = list(range(len(variables)))
        if self.groups is None:
            return [indices]
        if isinstance(self.groups, int):
            share = -(-len(indices) // self.groups)
            return [indices[at : at + share] for at in range(0, len(indices), share)]
        place = {id(variable): index for index, variable in enumerate(variables)}
        groups = [[place[id(variable)] for variable in group if id(variable) in place] for group in self.groups]
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
    """A reducer of arguments that users gave.

    Raises:
        ValueError: an argument is out of its range.
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
    """Adds up the gradients of some backward passes before they are combined and applied."""

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
        """Adds ``gradients``; at the last pass calls ``then`` with the sums, and begins anew."""
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
        """Forgets what was added, as all ranks do at the start of a round."""
        for variable in self._sums.values():
            variable.assign(tf.zeros_like(variable))
        if self._count is not None:
            self._count.assign(0)

    def _make(self, gradients: dict[int, tf.Tensor]) -> None:
        # Variables are made outside of the function that is being traced.
        with tf.init_scope():
            if self._count is None:
                self._count = tf.Variable(0, trainable=False, dtype=tf.int64, name="backward_passes")
            for index, gradient in gradients.items():
                if index not in self._sums:
                    self._sums[index] = tf.Variable(
                        tf.zeros(gradient.shape, gradient.dtype), trainable=False, name=f"gradient_{index}"
                    )


def dense(gradient: Gradient | None) -> tf.Tensor | None:
    """The gradient with all of its rows."""
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient
