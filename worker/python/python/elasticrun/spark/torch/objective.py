"""The training objective: the weighted losses of a batch, and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .batches import TensorSpec, outputs_of

__all__ = ["Measured", "Objective", "width_of"]

#: Takes an output of the model and a label.
Loss = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Measured:
    """Loss and metrics of a batch.

    Attributes:
        loss: mean over the rows, with a gradient.
        sums: number of rows, and the sums over them of the loss and of each metric of each label, on the model's device.
        widths: number of values in a row of each output; None for a single value.
    """

    loss: torch.Tensor
    sums: torch.Tensor
    widths: list[int | None]


@dataclass(frozen=True)
class Objective:
    """The losses and metrics of a model.

    Attributes:
        inputs: tensors of the model's arguments.
        labels: tensors of the labels, one for each output of the model.
        losses: loss function of each label.
        loss_weights: weights of the losses.
        metrics: functions of an output and a label that return a mean over the rows.
        weight: column with weights of rows, if any.
    """

    inputs: TensorSpec
    labels: TensorSpec
    losses: tuple[Loss, ...]
    loss_weights: tuple[float, ...]
    metrics: tuple[Loss, ...] = ()
    weight: str | None = None

    @property
    def columns(self) -> list[str]:
        """The required columns."""
        names = [*self.inputs.names, *self.labels.names, *([self.weight] if self.weight else [])]
        return list(dict.fromkeys(names))

    @property
    def counts(self) -> int:
        """Number of sums."""
        return 2 + len(self.metrics) * len(self.labels.names)

    def measure(self, model: torch.nn.Module, batch: dict[str, Any], device: torch.device) -> Measured:
        """The loss and the metrics of a batch with at least one row."""
        inputs = self.inputs.tensors(batch, device)
        rows = len(inputs[0])
        outputs = outputs_of(model(*inputs), self.labels.names)
        labels = [self._alike(*pair) for pair in zip(self.labels.tensors(batch, device), outputs, strict=True)]
        weights = torch.as_tensor(batch[self.weight]).to(device, torch.float32) if self.weight else None
        losses = zip(self.losses, self.loss_weights, outputs, labels, strict=True)
        loss = torch.stack(
            [share * _loss(function, output, label, weights) for function, share, output, label in losses]
        ).sum()
        with torch.no_grad():
            pairs = list(zip(outputs, labels, strict=True))
            metrics = [torch.as_tensor(metric(*pair), device=device) for metric in self.metrics for pair in pairs]
            # All values stay on the device, so this does not synchronise with it.
            means = torch.stack([torch.ones((), device=device), loss.detach(), *metrics]).to(torch.float64)
        return Measured(loss, means * rows, [width_of(output) for output in outputs])

    def entry(self, sums: Sequence[float]) -> dict[str, Any]:
        """The history entry of some sums: the means of loss and metrics."""
        means = [value / sums[0] if sums[0] else float("nan") for value in sums[1:]]
        groups = []
        for index, metric in enumerate(self.metrics):
            name = getattr(metric, "__name__", type(metric).__name__)
            values = means[1 + index * len(self.labels.names) :]
            groups.append({f"{name}_{label}": value for label, value in zip(self.labels.names, values, strict=False)})
        return {"loss": means[0], "all_metrics": groups}

    def _alike(self, label: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        """A label for its loss: in the shape of the output if it has the same number of values, else single values as (rows)."""
        if self.labels.shapes is not None:
            return label
        if label.numel() == output.numel():
            return label.reshape(output.shape)
        return label.flatten() if label.dim() == 2 and label.shape[1] == 1 else label


def _loss(function: Loss, output: torch.Tensor, label: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    if weights is None:
        return function(output, label)
    each: torch.Tensor = function(output, label, reduction="none")
    return (each.reshape(len(weights), -1).mean(1) * weights).mean()


def width_of(output: torch.Tensor) -> int | None:
    """Number of values in a row of an output; None for a single value."""
    return None if output.dim() == 1 or output[0].numel() == 1 else output[0].numel()
