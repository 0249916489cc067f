"""The state of training with torch."""

from __future__ import annotations

import torch

from elasticrun.elastic import ObjectState

from .. import distributed
from . import handlers as _handlers  # noqa: F401 - registers them


class TorchState(ObjectState):
    """A model, an optimizer, samplers, and any other values by name.

    ::

        state = TorchState(model, optimizer, sampler=sampler, epoch=0, batch=0)

    A restore fills the parameters of modules and optimizers in place, on their devices; there may be any number of them, with
    any names. Samplers (:class:`ElasticSampler`) and torch learning-rate schedulers also stay the same objects. All other
    values are replaced by the committed ones. A value that refers to a model, an optimizer or another of these objects (a
    scheduler of another library, a trainer) is refused: store its ``state_dict()``. Tensors that shared memory no longer
    share it after a restore, except for tied weights.

    Gradients are not part of the state: commit after the step, not between its backward passes.

    A commit copies the memory of tensors once, unchanged, to the agent. CUDA memory is copied through page-locked memory.

    Args:
        model: a module.
        optimizer: an optimizer, wrapped or not.
        objects: other values, which may be None.

    Raises:
        StateError: an attribute cannot be serialised, its name is that of a method, or it is a shard (FSDP, ZeRO).
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **objects: object,
    ) -> None:
        trained = {"model": model, "optimizer": optimizer}
        given = {name: value for name, value in trained.items() if value is not None}
        super().__init__(**given, **objects)

    def _begin_round(self) -> None:
        # First, so that callbacks and a user's sync() find the groups of this round.
        distributed.refresh()
        super()._begin_round()
