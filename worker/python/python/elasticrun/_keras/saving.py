"""load_model: loads a saved model and distributes its optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .optimizer import DistributedOptimizer

__all__ = ["load_model"]


def load_model(
    keras: Any,
    filepath: Any,
    custom_optimizers: Sequence[type] | None,
    custom_objects: Mapping[str, Any] | None,
    compression: Any,
) -> Any:
    """Like ``keras.models.load_model``, with a distributed optimizer."""
    known = {kind.__name__: kind for kind in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
    if getattr(model, "optimizer", None) is not None:
        model.optimizer = DistributedOptimizer(model.optimizer, compression=compression)
    return model
