"""The state of a torch training."""

from __future__ import annotations

import torch

from elasticrun.elastic import ObjectState

from .. import distributed
from . import handlers as _handlers  # noqa: F401 - registers them


class TorchState(ObjectState):
    """A model, an optimizer, samplers, and any other values by name.

    ::

        state = TorchState(model, optimizer, sampler=sampler, epoch=0, batch=0)

    Modules and optimizers, however many and by any name, stay the objects that they are: a restore fills their
    parameters in place, on their devices. So do samplers (:class:`ElasticSampler`), which are shared out anew
    in each round, and learning-rate schedulers of torch, which stay bound to their optimizer. All other values are replaced
    by what was committed; one that holds the model, the optimizer or another of these (a scheduler of another library, a
    trainer) is refused: give its ``state_dict()``. Tensors that share memory come back apart, but for tied weights.

    Gradients are no part of a state: commit behind the step, not between the backward passes of one.

    A commit copies memory of tensors as it is, once, to the agent; that of CUDA through page-locked memory.

    Args:
        model: a module.
        optimizer: an optimizer, wrapped or not.
        objects: other values; None among them is a value.

    Raises:
        StateError: an attribute cannot be serialised, has the name of a method, or is a shard (FSDP, ZeRO).
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
        # Before anything else, so that callbacks and a sync() of the user's own find this round's groups.
        distributed.refresh()
        super()._begin_round()
