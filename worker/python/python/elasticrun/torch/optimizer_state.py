"""What an optimizer takes over from another one's ``state_dict()``, and what stays its own."""

from __future__ import annotations

from typing import Any

import torch


def load(optimizer: torch.optim.Optimizer, stored: dict[str, Any]) -> None:
    """As ``optimizer.load_state_dict(stored)``, with two differences.

    The groups of parameters stay the objects that they are, since a scheduler may hold them that was bound before the
    optimizer was wrapped. Tensors keep their types, also in the optimizer of parameters of another one (weights in
    float32 behind parameters in bfloat16), which torch would convert.

    Raises:
        ValueError: the optimizer has other parameters than the one that was stored.
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
    """Drops what was accumulated."""
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
