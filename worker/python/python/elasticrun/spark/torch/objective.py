"""What is made small: the losses of a batch, weighted, and what is measured beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .batches import Form, outputs_of

__all__ = ["Measured", "Objective", "width_of"]

#: Takes an output of the model and a label.
Loss = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Measured:
    """Of some rows.

    Attributes:
        loss: the mean over the rows, with a gradient.
        sums: rows, and the sums over them of the loss and of each metric of each label; where the model is.
        widths: values of each output in a row; None where there is one and no dimension for it.
    """

    loss: torch.Tensor
    sums: torch.Tensor
    widths: list[int | None]


@dataclass(frozen=True)
class Objective:
    """See the module.

    Attributes:
        inputs: of the model.
        labels: one for each output of the model.
        losses: one for each label.
        loss_weights: of the losses.
        metrics: functions of an output and a label that give a mean over the rows.
        weight: the column with weights of rows, if there is one.
    """

    inputs: Form
    labels: Form
    losses: tuple[Loss, ...]
    loss_weights: tuple[float, ...]
    metrics: tuple[Loss, ...] = ()
    weight: str | None = None

    @property
    def columns(self) -> list[str]:
        """The columns that are needed."""
        names = [*self.inputs.names, *self.labels.names, *([self.weight] if self.weight else [])]
        return list(dict.fromkeys(names))

    @property
    def counts(self) -> int:
        """How many sums there are."""
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
            # Nobody waits for the device here.
            means = torch.stack([torch.ones((), device=device), loss.detach(), *metrics]).to(torch.float64)
        return Measured(loss, means * rows, [width_of(output) for output in outputs])

    def entry(self, sums: Sequence[float]) -> dict[str, Any]:
        """Means of sums, as the history of a model has them."""
        means = [value / sums[0] if sums[0] else float("nan") for value in sums[1:]]
        groups = []
        for place, metric in enumerate(self.metrics):
            name = getattr(metric, "__name__", type(metric).__name__)
            values = means[1 + place * len(self.labels.names) :]
            groups.append({f"{name}_{label}": value for label, value in zip(self.labels.names, values, strict=False)})
        return {"loss": means[0], "all_metrics": groups}

    def _alike(self, label: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        """A label as its loss takes it: in the output's shape if it has as many values, else single values as (rows)."""
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
    """Values of an output in a row; None where there is a single one."""
    return None if output.dim() == 1 or output[0].numel() == 1 else output[0].numel()
