"""Elastic training: states that survive the loss of workers, and the loop that calls the training function.

A script creates the state and decorates the function once::

    state = elasticrun.ObjectState(weights=weights, step=0)

    @elasticrun.elastic.run
    def train(state):
        while state.step < 1000:
            ...
            state.step += 1
            state.commit()

    train(state)
"""

from __future__ import annotations

from ..sampler import ElasticSampler
from .array_state import ArrayState
from .handlers import Handler, JointHandler, register_handler
from .jax_state import JaxState
from .loop import run
from .object_state import ObjectState
from .state import State

__all__ = [
    "ArrayState",
    "ElasticSampler",
    "Handler",
    "JaxState",
    "JointHandler",
    "ObjectState",
    "State",
    "register_handler",
    "run",
]
