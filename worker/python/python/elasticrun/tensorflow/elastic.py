"""Elastic training with TensorFlow: states of models, optimizers and variables, and the loop that calls the training function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from elasticrun._keras.fit_progress import ATTRIBUTE, FitProgress
from elasticrun._keras.state_handlers import register_model, register_optimizer
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

    It also recognises the errors with which TensorFlow replaces those of collectives inside a ``tf.function``.
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

    The state contains all variables of the model, trainable or not, and those of the optimizer with its learning rate. It
    supports models and optimizers of Keras 3 and of tf_keras. A restore assigns to existing variables. New workers need no
    training step before. The attribute ``fit_progress`` is for the callbacks of this package.

    Args:
        model: the model, built.
        optimizer: its optimizer. Default: that of ``model.compile()``. Its variables are created if necessary.
        backend: accepted for Horovod compatibility, without effect.
        attributes: see :class:`elasticrun.ObjectState`.

    Raises:
        ValueError: the model is not built, or it is compiled with ``jit_compile`` and a distributed optimizer.
        StateError: see :class:`elasticrun.ObjectState`.
    """

    model: Any
    optimizer: Any

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **attributes: object) -> None:
        register_model(model)
        optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        if optimizer is not None:
            register_optimizer(optimizer, model.trainable_variables)
            attributes = {"optimizer": optimizer, **attributes}
        else:
            self.optimizer = None
        super().__init__(model=model, **attributes, **{ATTRIBUTE: FitProgress()})


class TensorFlowState(_State):
    """Variables of TensorFlow, and other attributes.

        state = TensorFlowState(variables=[weights, bias], step=0)

    Args:
        variables: variables of TensorFlow or Keras, the same list in all workers.
        session: accepted for Horovod compatibility, without effect.
        attributes: see :class:`elasticrun.ObjectState`.

    Raises:
        ValueError: ``variables`` is missing.
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
    """A list of variables with a state handler, which restores them by assignment."""


class _VariablesHandler:
    def capture(self, value: _Variables) -> object:
        return tensors.values(value)

    def restore(self, value: _Variables, stored: list[tf.Tensor]) -> _Variables:
        tensors.assign(value, stored, "TensorFlowState")
        return value

    def reset(self, value: _Variables) -> None:
        pass


register_handler(_Variables, _VariablesHandler())
