"""What ``fully_shard`` keeps of a model beside its parameters. None of it is public: what is missing is left to FSDP itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def owners(model: torch.nn.Module) -> Iterator[object]:
    """The objects of ``fully_shard`` that hold tensors: states of parameters, groups of them, and communication."""
    for group in _groups(model):
        yield group
        yield from getattr(group, "fsdp_params", ())
        if hasattr(group, "comm_ctx"):
            yield group.comm_ctx


def allocate_padded(model: torch.nn.Module, device: str) -> dict[int, torch.Tensor]:
    """Allocates those local tensors of a model on the meta device that FSDP pads. Returns them by the id of their parameter.

    FSDP copies a local tensor that it finds without padding, and both need pages for that. It takes one of these as it is.
    """
    allocated = {}
    for group in _groups(model):
        for one in getattr(group, "fsdp_params", ()):
            parameter, size = one.sharded_param, getattr(one, "padded_sharded_param_size", None)
            local: Any = getattr(parameter, "_local_tensor", None)
            # Rows are padded, so a tensor of another kind, or in pinned memory, is left to FSDP.
            if type(local) is not torch.Tensor or not local.is_meta or size is None or local.shape == size:
                continue
            if getattr(one, "pin_memory", False) or local.shape[1:] != size[1:]:
                continue
            rows = local.shape[0]
            padded = torch.empty(size, dtype=local.dtype, device=device)
            padded[rows:].zero_()
            one._sharded_param_data = padded.view(-1)
            allocated[id(parameter)] = padded[:rows]
    return allocated


def _groups(model: torch.nn.Module) -> Iterator[Any]:
    """The groups of parameters that are gathered together."""
    for module in model.modules():
        state_of = getattr(module, "_get_fsdp_state", None)
        if state_of is None:
            continue
        state = state_of()
        # Before torch 2.11 a module has one group.
        groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
        yield from (group for group in groups if group is not None)
