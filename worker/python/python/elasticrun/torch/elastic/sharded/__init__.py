"""A state whose model is divided among the workers: docs/design/sharded-state.md."""

from __future__ import annotations

from .per_rank import PerRank, RandomGenerators
from .state import ShardedState

__all__ = ["PerRank", "RandomGenerators", "ShardedState"]
