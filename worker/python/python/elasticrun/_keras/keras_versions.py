"""Differences between the optimizers of Keras 3, tf_keras, and the legacy ones of tf_keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["build", "is_keras3", "is_legacy", "learning_rate", "set_learning_rate", "variables"]


def is_keras3(optimizer: Any) -> bool:
    """Whether it is an optimizer of Keras 3, which applies gradients with ``apply()``."""
    return hasattr(optimizer, "stateless_apply")


def is_legacy(optimizer: Any) -> bool:
    """Whether it is an optimizer of ``tf_keras.optimizers.legacy``, whose hyperparameters are variables."""
    return hasattr(optimizer, "_create_all_weights")


def build(optimizer: Any, trainable: Sequence[Any]) -> None:
    """Creates the optimizer's variables, unless they exist."""
    if is_legacy(optimizer):
        # Idempotent. It creates hyperparameters as well.
        optimizer._create_all_weights(trainable)
    elif is_keras3(optimizer):
        if not optimizer.built:
            optimizer.build(trainable)
    elif hasattr(optimizer, "build"):
        optimizer.build(trainable)


def variables(optimizer: Any) -> list[Any]:
    """All variables of the optimizer, including those of its hyperparameters."""
    found = optimizer.variables
    result = list(found() if callable(found) else found)
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    settings = {"learning_rate": getattr(inner, "_learning_rate", None), **getattr(inner, "_hyper", {})}
    known = {id(variable) for variable in result}
    for _, value in sorted(settings.items()):
        if hasattr(value, "assign") and id(value) not in known:
            result.append(value)
    return result


def learning_rate(optimizer: Any) -> float:
    """The learning rate as a number."""
    rate = optimizer.learning_rate
    return float(rate.numpy() if hasattr(rate, "numpy") else rate)


def set_learning_rate(optimizer: Any, rate: float) -> None:
    """Sets the learning rate.

    Raises:
        ValueError: the learning rate follows a Keras schedule.
    """
    given = getattr(optimizer, "_learning_rate", optimizer.learning_rate)
    if callable(given):
        raise ValueError(
            f"the learning rate follows a schedule ({type(given).__name__}): compile with a number, or leave this"
            " callback out"
        )
    optimizer.learning_rate = rate
