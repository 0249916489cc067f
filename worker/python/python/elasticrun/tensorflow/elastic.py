"""Elastic training with TensorFlow: states of models, optimizers and variables, and the loop around training."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from elasticrun._keras.kept import keep_model, keep_optimizer
from elasticrun.elastic import ElasticSampler, ObjectState, State, register_handler
from elasticrun.elastic import run as _run

from . import tensors
from .failures import translated

__all__ = [
    "ElasticSampler",
    "ObjectState",
    "State",
    "TensorFlowKerasState",
    "TensorFlowState",
    "run",
]

R = TypeVar("R")


def run(func: Callable[..., R]) -> Callable[..., R]:
    """Decorates a training function: see :func:`elasticrun.elastic.run`.

    Understands the errors that TensorFlow makes of those of collectives inside a ``tf.function``.
    """

    @functools.wraps(func)
    def train(state: State, *args: Any, **kwargs: Any) -> R:
        with translated():
            return func(state, *args, **kwargs)

    return _run(train)


class _State(ObjectState):
    def on_reset(self) -> None:
        """Calls the reset callbacks, which may train with collectives."""
        with translated():
            super().on_reset()


class TensorFlowKerasState(_State):
    """A model of Keras, its optimizer, and other attributes.

        state = TensorFlowKerasState(model, batch=0, epoch=0)

    Kept are the variables of the model, also those that are not trained, and those of the optimizer with its
    learning rate. Models and optimizers of Keras 3 and of tf_keras are taken. Restored values are assigned to
    the variables that there are; newcomers need no training step before.

    Args:
        model: the model, built.
        optimizer: its optimizer; without it, that of ``model.compile()``. Its variables are made here, if it has
            none yet.
        backend: taken for Horovod's sake, without effect.
        attributes: see :class:`elasticrun.ObjectState`.

    Raises:
        ValueError: the model is not built, or it is compiled with ``jit_compile`` and a distributed optimizer.
        StateError: see :class:`elasticrun.ObjectState`.
    """

    model: Any
    optimizer: Any

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **attributes: object) -> None:
        keep_model(model)
        optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        if optimizer is not None:
            keep_optimizer(optimizer, model.trainable_variables)
            attributes = {"optimizer": optimizer, **attributes}
        else:
            self.optimizer = None
        super().__init__(model=model, **attributes)


class TensorFlowState(_State):
    """Variables of TensorFlow, and other attributes.

        state = TensorFlowState(variables=[weights, bias], step=0)

    Args:
        variables: variables of TensorFlow or Keras, the same list in all workers.
        session: TensorFlow 1's, and of no use here.
        attributes: see :class:`elasticrun.ObjectState`.

    Raises:
        ValueError: there are no ``variables``.
        StateError: see :class:`elasticrun.ObjectState`.
    """

    variables: Sequence[Any]

    def __init__(self, variables: Sequence[Any] | None = None, session: None = None, **attributes: object) -> None:
        if variables is None:
            raise ValueError(
                "TensorFlowState needs variables: TensorFlow 2 has no global ones that could be taken without it"
            )
        super().__init__(variables=_Variables(variables), **attributes)


class _Variables(list[Any]):
    """Variables that stay the ones that they are."""


class _VariablesHandler:
    def capture(self, value: _Variables) -> object:
        return tensors.values(value)

    def restore(self, value: _Variables, stored: list[tf.Tensor]) -> _Variables:
        tensors.assign(value, stored, "TensorFlowState")
        return value

    def reset(self, value: _Variables) -> None:
        pass


register_handler(_Variables, _VariablesHandler())
