"""Elastic training with torch: a state that survives the loss of workers, and the loop that calls the training function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elasticrun.elastic import ObjectState, State

from .global_batch import GlobalBatch, MicroBatch
from .loop import run
from .sampler import ElasticSampler
from .state import TorchState

if TYPE_CHECKING:
    from .sharded import RandomGenerators, ShardedState

__all__ = [
    "ElasticSampler",
    "GlobalBatch",
    "MicroBatch",
    "ObjectState",
    "RandomGenerators",
    "ShardedState",
    "State",
    "TorchState",
    "run",
]


def __getattr__(name: str) -> Any:
    # The import of DTensor takes a second, and most scripts have no use for it.
    if name in ("RandomGenerators", "ShardedState"):
        from . import sharded

        return getattr(sharded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
