"""Checkpoints of an estimator: their content, and their way from rank 0 to the program after each epoch."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Epoch", "EpochSender", "restore", "saved"]

_log = logging.getLogger("elasticrun")


@dataclass(frozen=True)
class Epoch:
    """A committed epoch, which rank 0 sends to the program before it begins the next one.

    Attributes:
        number: how many epochs are complete.
        checkpoint: weights and optimizer state, in the format of :func:`torch.save`.
    """

    number: int
    checkpoint: bytes


class EpochSender:
    """Sends the weights of complete epochs from rank 0 to the program, each once if this process is not replaced.

    The beginning of an epoch is committed, so no round returns to a point before it.
    """

    def __init__(self, every: int, rates: Sequence[float]) -> None:
        self._every = every
        self._rates = rates
        self._sent = 0

    def send(self, state: Any) -> None:
        """Sends the weights, if the state is at the beginning of an epoch whose number is due. A failure is logged."""
        import elasticrun.torch as hvd

        from ..._function_worker import progress

        begins = state.trained is None and state.steps == 0
        if hvd.rank() != 0 or not begins or state.epoch == self._sent or state.epoch % self._every:
            return
        self._sent = state.epoch
        try:
            progress(Epoch(state.epoch, saved(state.model, state.optimizer, self._rates)))
        except ConnectionError as error:
            _log.warning("the checkpoint of epoch %d did not reach the program: %s", state.epoch, error)


def saved(model: torch.nn.Module, optimizer: torch.optim.Optimizer, rates: Sequence[float]) -> bytes:
    """Weights and optimizer state, with the learning rates of a single worker."""
    found = optimizer.state_dict()
    for group, rate in zip(found["param_groups"], rates, strict=True):
        group["lr"] = rate
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": found}, file)
    return file.getvalue()


def restore(model: torch.nn.Module, optimizer: torch.optim.Optimizer, checkpoint: bytes) -> None:
    """Restores a checkpoint of :func:`saved`."""
    found = torch.load(io.BytesIO(checkpoint), map_location="cpu", weights_only=True)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
