"""The base class of distributed optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    _Optimizer = torch.optim.Optimizer
else:
    # At run time it precedes the class of the user's optimizer in the bases.
    _Optimizer = object


class WrappedOptimizer(_Optimizer):
    """Methods that override those of the optimizer's class."""

    _passes: int

    @property
    def backward_passes_per_step(self) -> int:
        """Backward passes whose gradients are accumulated before a step."""
        return self._passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes the number of backward passes, from the next step on.

        Raises:
            ValueError: ``passes`` is less than 1.
        """
        if passes <= 0:
            raise ValueError(f"backward_passes_per_step is {passes}: it must be 1 or more")
        self._passes = passes
