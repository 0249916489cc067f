"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from .rounds import host_transport, transport


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation whose mean and variance are those of the batches of all ranks together.

    Batches may have different sizes. In evaluation mode, and with a single worker, it behaves like torch's layer. It takes the
    arguments of ``torch.nn.BatchNorm2d``. Inputs have at least two dimensions, of which the second are channels.
    """

    def _check_input_dim(self, tensor: torch.Tensor) -> None:
        if tensor.dim() < 2:
            raise ValueError(f"SyncBatchNorm of {tensor.dim()} dimension(s): it needs at least two (batch, channels)")

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        """Normalises ``tensor``, (batch, channels, ...)."""
        self._check_input_dim(tensor)
        is_local = not self.training or host_transport().size == 1
        if is_local:
            output: torch.Tensor = super().forward(tensor)
            return output
        momentum = self.momentum
        if self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        normalised: torch.Tensor = _Normalise.apply(
            tensor,
            self.weight,
            self.bias,
            self.running_mean,
            self.running_var,
            self.eps,
            momentum if momentum is not None else 0.0,
        )
        return normalised


def _sum(values: torch.Tensor) -> torch.Tensor:
    """The sum over all ranks, in place."""
    transport(values.device).allreduce([values], "sum").wait()
    return values


def _per_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    shape = [1, -1] + [1] * (like.dim() - 2)
    shaped: torch.Tensor = values.to(like.dtype).reshape(shape)
    return shaped


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        eps: float,
        momentum: float,
    ) -> torch.Tensor:
        dims = [dim for dim in range(tensor.dim()) if dim != 1]
        channels = tensor.shape[1]
        wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        count = tensor.numel() // max(channels, 1)
        # A second sum over deviations from the common mean is more precise than a difference of squares.
        sums = _sum(torch.cat([wide.sum(dims), wide.new_tensor([count])]))
        total = sums[-1]
        mean = sums[:-1] / total
        centred = wide - _per_channel(mean, wide)
        variance = _sum(centred.square().sum(dims)) / total
        inverse = (variance + eps).rsqrt()
        if running_mean is not None and running_var is not None:
            running_mean.mul_(1 - momentum).add_(mean.to(running_mean.dtype), alpha=momentum)
            unbiased = variance * total / (total - 1).clamp(min=1)
            running_var.mul_(1 - momentum).add_(unbiased.to(running_var.dtype), alpha=momentum)
        normal = centred * _per_channel(inverse, wide)
        ctx.save_for_backward(normal, weight, inverse, total)
        output = normal
        if weight is not None:
            output = output * _per_channel(weight, wide)
        if bias is not None:
            output = output + _per_channel(bias, wide)
        return output.to(tensor.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        normal, weight, inverse, total = ctx.saved_tensors
        wide = gradient.to(normal.dtype)
        dims = [dim for dim in range(wide.dim()) if dim != 1]
        bias_gradient = wide.sum(dims)
        weight_gradient = (wide * normal).sum(dims)
        # The gradient of the input needs sums over all ranks. The optimizer combines those of the parameters.
        means = _sum(torch.cat([bias_gradient, weight_gradient])) / total
        bias_mean, weight_mean = means.chunk(2)
        input_gradient = wide - _per_channel(bias_mean, wide) - normal * _per_channel(weight_mean, wide)
        scale = inverse if weight is None else inverse * weight.to(inverse.dtype)
        input_gradient = (input_gradient * _per_channel(scale, wide)).to(gradient.dtype)
        return (
            input_gradient,
            None if weight is None else weight_gradient.to(weight.dtype),
            None if weight is None else bias_gradient.to(weight.dtype),
            None,
            None,
            None,
            None,
        )
