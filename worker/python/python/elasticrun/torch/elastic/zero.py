"""ZeroRedundancyOptimizer (ZeRO-1): each parameter has one worker that holds its optimizer state."""

from __future__ import annotations

from typing import Any

import torch

from elasticrun.errors import StateError


def is_zero(optimizer: torch.optim.Optimizer | None) -> bool:
    """Whether it is a ``ZeroRedundancyOptimizer``."""
    # By name: the import of the class takes a while, and torch lacks it in builds without distributed.
    return any(base.__name__ == "ZeroRedundancyOptimizer" for base in type(optimizer).__mro__)


def local_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer that holds the state of this worker: that of the parameters which a ``ZeroRedundancyOptimizer`` has assigned
    to it. Any other optimizer itself.

    Raises:
        StateError: the wrapper assigns parameters to workers during the first steps only.
    """
    if not is_zero(optimizer):
        return optimizer
    wrapper: Any = optimizer
    if getattr(wrapper, "_overlap_with_ddp", False):
        raise StateError(
            "ZeroRedundancyOptimizer(overlap_with_ddp=True) assigns parameters to workers during the first steps, so a"
            " commit cannot be loaded before: leave overlap_with_ddp out"
        )
    local: torch.optim.Optimizer = wrapper.optim
    return local
