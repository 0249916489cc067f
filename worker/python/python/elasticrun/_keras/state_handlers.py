"""State handlers of models and optimizers, which store their variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticrun.elastic import register_handler
from elasticrun.tensorflow import tensors

from . import keras_versions
from .optimizer import begin_round, is_distributed

__all__ = ["register_model", "register_optimizer"]


def register_model(model: Any) -> None:
    """Registers the state handler for the type of ``model``.

    Raises:
        ValueError: the model is not built, or XLA would compile a training step with collectives.
    """
    if is_distributed(getattr(model, "optimizer", None)) and getattr(model, "jit_compile", False):
        raise ValueError(
            "the model is compiled with jit_compile (which Keras chooses by itself on GPUs), but XLA cannot compile"
            " collectives: pass jit_compile=False to model.compile()"
        )
    if not getattr(model, "built", True):
        raise ValueError(
            "the model is not built, so it has no variables yet: call model.build(input_shape), or begin it with an"
            " Input layer"
        )
    register_handler(type(model), _Model())


def register_optimizer(optimizer: Any, trainable: Sequence[Any]) -> None:
    """Registers the state handler for the type of ``optimizer``, and creates the optimizer's variables."""
    keras_versions.build(optimizer, trainable)
    register_handler(type(optimizer), _Optimizer())


class _Model:
    """Restores a model by assigning its variables."""

    def capture(self, value: Any) -> object:
        return tensors.values(value.variables)

    def restore(self, value: Any, stored: Any) -> Any:
        tensors.assign(value.variables, stored, "the model")
        return value

    def reset(self, value: Any) -> None:
        pass


class _Optimizer:
    """Restores an optimizer by assigning its variables. A new round discards the gradients that each rank has accumulated."""

    def capture(self, value: Any) -> object:
        return tensors.values(keras_versions.variables(value))

    def restore(self, value: Any, stored: Any) -> Any:
        tensors.assign(keras_versions.variables(value), stored, "the optimizer")
        return value

    def reset(self, value: Any) -> None:
        begin_round(value)
