"""What ``build`` of a sharded state returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch.distributed.tensor import DTensor

from elasticrun.errors import StateError

from ..zero import local_optimizer
from . import fsdp
from .capture import canonical

#: A module, or a module, its optimizer, and objects with a ``state_dict()`` such as schedulers.
Built = torch.nn.Module | tuple[Any, ...]


def parts_of(built: Built) -> tuple[torch.nn.Module, torch.optim.Optimizer, tuple[Any, ...]]:
    """The model, its optimizer, which may be None, and the further objects.

    Raises:
        StateError: it is nothing that a commit could be loaded to.
    """
    model, *rest = built if isinstance(built, tuple) else (built,)
    if not isinstance(model, torch.nn.Module):
        raise StateError(
            f"build() returned an object of type {type(model).__name__}: expected a module, or a tuple of a module and its"
            " optimizer"
        )
    optimizer = cast(torch.optim.Optimizer, None)
    if rest and isinstance(rest[0], torch.optim.Optimizer):
        optimizer = rest.pop(0)
        # Refuses one whose state is not known.
        local_optimizer(optimizer)
    for other in rest:
        if not (hasattr(other, "state_dict") and hasattr(other, "load_state_dict")):
            raise StateError(f"build() returned an object of type {type(other).__name__}, which has no state_dict()")
    return model, optimizer, tuple(rest)


def leave_meta(model: torch.nn.Module, device: str) -> bool:
    """Gives a model on the meta device memory with any contents. Returns whether it was there."""
    tensors = [*model.parameters(), *model.buffers()]
    if not any(tensor.is_meta for tensor in tensors):
        return False
    allocated = fsdp.allocate_padded(model, device)

    def empty(tensor: torch.Tensor) -> torch.Tensor:
        made = torch.empty_like(tensor, device=device)
        local = allocated.get(id(tensor))
        if isinstance(made, DTensor) and local is not None:
            made._local_tensor = local
        return made

    # As to_empty() does it.
    model._apply(empty)
    return True


def reset_parameters(model: torch.nn.Module) -> None:
    """Gives a model that was on the meta device the values of its modules.

    Raises:
        StateError: a module has no ``reset_parameters()``.
    """
    for name, module in model.named_modules():
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        reset = getattr(module, "reset_parameters", None)
        if own and reset is None:
            raise StateError(
                f"build() returned a model on the meta device, and {name or type(module).__name__} has no reset_parameters(), which"
                " would give it values in the first round: give it one, or build the model with values"
            )
        if own and reset is not None:
            reset()


def load_extra(model: torch.nn.Module, extra: Mapping[str, Any]) -> None:
    """Gives modules their extra state."""
    if extra:
        state = model.state_dict()
        # Workers of other stages have other modules.
        model.load_state_dict({key: extra.get(canonical(key), value) for key, value in state.items()})
