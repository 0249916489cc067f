"""The optimizer step of DistributedOptimizer with op=Adasum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from . import adasum
from .memory import refuse_sparse
from .mismatch_check import Announcement, Call
from .rounds import host_transport
from .wrapped_optimizer import WrappedOptimizer


class AdasumStep(WrappedOptimizer):
    """Each rank computes a step from its own gradients. The Adasum of the steps is applied.

    Momentum and scaling of the optimizer therefore act before the combination. All ranks call ``step()`` equally often.
    """

    def _begin(self, named: Sequence[tuple[str, torch.Tensor]], passes: int, compression: Any) -> None:
        self._trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        self._passes = passes
        self._compression = compression

    def synchronize(self) -> None:
        """Does nothing, since steps are combined, not gradients."""

    def skip_synchronize(self) -> NoReturn:
        """Refused.

        Raises:
            AssertionError: always, since steps are combined, not gradients.
        """
        raise AssertionError(
            "skip_synchronize() is not for op=Adasum: it combines the steps of the ranks, "
            "so there are no reduced gradients to look at"
        )

    def step(self, closure: Any = None) -> Any:
        """Makes the optimizer's step, combined with those of all ranks.

        Raises:
            WorkersFailed: the round is over.
            CollectiveMismatch: the ranks have different models. The message names the parameter.
        """
        host = host_transport()
        parameters = [parameter for _, parameter in self._trained]
        for name, parameter in self._trained:
            if parameter.grad is not None:
                refuse_sparse(parameter.grad, f"Adasum of the gradient of {name!r}")
        detail = {"op": "adasum", "names": [name for name, _ in self._trained], "scale": [1.0, 1.0]}
        described = tuple((self._travels_as(one), tuple(one.shape)) for one in parameters)
        announcement = Announcement(host, Call("allreduce", None, described, detail))
        with torch.no_grad():
            before = [parameter.detach().clone() for parameter in parameters]
        loss = super().step(closure)
        announcement.check()
        with torch.no_grad():
            for parameter, start in zip(parameters, before, strict=True):
                delta, context = self._compression.compress(parameter.detach() - start)
                adasum.combine(host, delta)
                parameter.copy_(start + self._compression.decompress(delta, context))
        return loss

    def _travels_as(self, parameter: torch.Tensor) -> str:
        compressed, _ = self._compression.compress(torch.empty(0, dtype=parameter.dtype))
        return str(compressed.dtype).removeprefix("torch.")
