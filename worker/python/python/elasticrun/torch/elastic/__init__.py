"""Elastic training with torch: a state that survives the loss of workers, and the loop that calls the training function."""

from __future__ import annotations

from elasticrun.elastic import ObjectState, State

from .loop import run
from .sampler import ElasticSampler
from .state import TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
