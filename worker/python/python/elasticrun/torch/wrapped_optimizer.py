"""What both kinds of a distributed optimizer have, whatever they bring together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    _Optimizer = torch.optim.Optimizer
else:
    # At run time it stands in front of the class of the user's optimizer.
    _Optimizer = object


class WrappedOptimizer(_Optimizer):
    """Methods that come before those of the optimizer's own class."""

    _passes: int

    @property
    def backward_passes_per_step(self) -> int:
        """Backward passes whose gradients add up before a step."""
        return self._passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes it, from the next step on.

        Raises:
            ValueError: it is less than 1.
        """
        if passes <= 0:
            raise ValueError(f"backward_passes_per_step is {passes}: it must be 1 or more")
        self._passes = passes
