"""Loads the state of an optimizer in place, and preserves its types."""

from __future__ import annotations

from typing import Any

import torch


def load(optimizer: torch.optim.Optimizer, stored: dict[str, Any]) -> None:
    """Like ``optimizer.load_state_dict(stored)``, with two differences.

    Parameter groups stay the same objects, because a scheduler that was created before the optimizer was wrapped may refer to
    them. Tensors keep the stored types, where torch would convert them to the type of the parameter (such as float32 state of
    bfloat16 parameters).

    Raises:
        ValueError: the optimizer has other parameters than the stored one.
        KeyError: likewise.
    """
    groups = list(optimizer.param_groups)
    optimizer.load_state_dict(stored)
    for group, loaded in zip(groups, optimizer.param_groups, strict=True):
        if group is not loaded:
            group.clear()
            group.update(loaded)
    optimizer.param_groups[:] = groups
    _keep_types(optimizer, stored)


def forget_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Discards accumulated gradients."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def _keep_types(optimizer: torch.optim.Optimizer, stored: dict[str, Any]) -> None:
    indices = [index for group in stored["param_groups"] for index in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, parameter in zip(indices, parameters, strict=True):
        entry = stored["state"].get(index)
        if not isinstance(entry, dict):
            continue
        for name, tensor in entry.items():
            loaded = optimizer.state[parameter].get(name)
            both = isinstance(tensor, torch.Tensor) and isinstance(loaded, torch.Tensor)
            if both and loaded.dtype != tensor.dtype:
                optimizer.state[parameter][name] = tensor.to(loaded.device)
