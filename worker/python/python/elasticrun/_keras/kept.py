"""How models and optimizers are kept in a state: by their variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticrun.elastic import register_handler
from elasticrun.tensorflow import tensors

from . import kinds
from .optimizer import begin_round, is_distributed

__all__ = ["keep_model", "keep_optimizer"]


def keep_model(model: Any) -> None:
    """Has states keep models of the type of ``model``.

    Raises:
        ValueError: the model is not built, or XLA is to compile its training with collectives in it.
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


def keep_optimizer(optimizer: Any, trainable: Sequence[Any]) -> None:
    """Has states keep optimizers of the type of ``optimizer``, and makes its variables."""
    kinds.build(optimizer, trainable)
    register_handler(type(optimizer), _Optimizer())


class _Model:
    """A model stays the one that it is; its variables get what was stored."""

    def capture(self, value: Any) -> object:
        return tensors.values(value.variables)

    def restore(self, value: Any, stored: Any) -> Any:
        tensors.assign(value.variables, stored, "the model")
        return value

    def reset(self, value: Any) -> None:
        pass


class _Optimizer:
    """As a model. Gradients that were added up, each rank its own, are forgotten when a round begins."""

    def capture(self, value: Any) -> object:
        return tensors.values(kinds.variables(value))

    def restore(self, value: Any, stored: Any) -> Any:
        tensors.assign(kinds.variables(value), stored, "the optimizer")
        return value

    def reset(self, value: Any) -> None:
        begin_round(value)
