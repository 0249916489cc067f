"""What a shard of a model and its optimizer consists of: named tensors, and a head of values that are no tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from elasticrun.errors import StateError

from ..zero import local_optimizer
from .grouping import Grouping, regrouped

#: Prefixes that wrappers of torch put into names.
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")


@dataclass
class OptimizerTensor:
    """How a tensor of an optimizer's state is made again."""

    #: Divided as the parameter that it is of. Otherwise each worker holds all of it.
    divided: bool
    #: On the device of the parameter. Otherwise in host memory.
    on_device: bool


@dataclass
class Head:
    """The part of a shard that is no tensor. It is the same in all shards."""

    #: Extra state of modules, by name.
    extra: dict[str, Any] = field(default_factory=dict)
    #: The groups of the optimizer, and what belongs to them. Workers that hold different parts of a model have their own.
    groupings: list[Grouping] = field(default_factory=list)
    #: Tensors and other values of the optimizer's state, by parameter and key.
    optimizer: dict[str, dict[str, OptimizerTensor]] = field(default_factory=dict)
    values: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Captured:
    """The tensors of a shard by name, and its head."""

    tensors: dict[str, torch.Tensor]
    head: Head


def capture(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None, others: Iterable[Any] = ()) -> Captured:
    """The tensors of a model and its optimizer, without a copy, and the state of further objects. Modules of FSDP reshard.

    Tied parameters have the first of their names. A ``ZeroRedundancyOptimizer`` has the state of the parameters that are
    assigned to this worker.

    Raises:
        StateError: a tensor is of a kind that cannot be divided anew.
    """
    tensors: dict[str, torch.Tensor] = {}
    head = Head()
    seen: set[int] = set()
    for key, value in model.state_dict(keep_vars=True).items():
        name = canonical(key)
        if not isinstance(value, torch.Tensor):
            head.extra[name] = value
        elif id(value) not in seen:
            seen.add(id(value))
            tensors[name] = checked(name, value)
    grouping = Grouping(others=[other.state_dict() for other in others])
    head.groupings.append(grouping)
    if optimizer is not None:
        names = parameter_names(model)
        for group in optimizer.param_groups:
            grouping.names.append([_name_of(parameter, names) for parameter in group["params"]])
            grouping.options.append(
                {key: value for key, value in group.items() if key not in ("params", "param_names")}
            )
        for parameter, entry in local_optimizer(optimizer).state.items():
            name = _name_of(parameter, names)
            for key, value in entry.items():
                _capture_entry(tensors, head, (name, key), parameter, value)
    return Captured(tensors, head)


def _capture_entry(
    tensors: dict[str, torch.Tensor],
    head: Head,
    place: tuple[str, str],
    parameter: torch.Tensor,
    value: object,
) -> None:
    name, key = place
    if not isinstance(value, torch.Tensor):
        head.values.setdefault(name, {})[key] = value
        return
    full = optimizer_name(name, key)
    divided = isinstance(value, DTensor)
    if isinstance(parameter, DTensor) and (value.shape != parameter.shape if divided else value.dim() > 0):
        raise StateError(
            f"{full} of the optimizer has the shape {list(value.shape)} and is not divided as its parameter"
            f" {list(parameter.shape)} is: another number of workers could not go on with it"
        )
    tensors[full] = checked(full, value)
    on_device = value.device.type == parameter.device.type
    head.optimizer.setdefault(name, {})[key] = OptimizerTensor(divided, on_device)


def make_optimizer_state(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    head: Head,
    stored: Mapping[str, tuple[str, list[int]]],
) -> None:
    """Gives the optimizer the options, values and tensors of a commit. The tensors have any contents.

    Args:
        model: the model of the optimizer's parameters.
        optimizer: a new optimizer.
        head: the head of the commit.
        stored: dtype and shape of the tensors of the commit, by name.

    Raises:
        StateError: the optimizer has other parameters, or in other groups.
    """
    names = parameter_names(model)
    groups = optimizer.param_groups
    grouping = regrouped(
        head.groupings, [[_name_of(parameter, names) for parameter in group["params"]] for group in groups]
    )
    set_options(optimizer, grouping)
    local = local_optimizer(optimizer)
    local.state.clear()
    for group in local.param_groups:
        for parameter in group["params"]:
            name = _name_of(parameter, names)
            entry = dict(head.values.get(name, {}))
            for key, kind in head.optimizer.get(name, {}).items():
                entry[key] = _empty(parameter, kind, *stored[optimizer_name(name, key)])
            if entry:
                local.state[parameter] = entry


def set_options(optimizer: torch.optim.Optimizer, grouping: Grouping) -> None:
    """Gives the groups of an optimizer their options."""
    for group, options in zip(optimizer.param_groups, grouping.options, strict=True):
        group.update(options)
    local = local_optimizer(optimizer)
    if local is not optimizer:
        # The wrapper does the same at each step.
        for group, own in zip(optimizer.param_groups, local.param_groups, strict=True):
            own.update((key, value) for key, value in group.items() if key != "params")


def _empty(parameter: torch.Tensor, kind: OptimizerTensor, dtype: str, shape: list[int]) -> torch.Tensor:
    element: torch.dtype = getattr(torch, dtype)
    if kind.divided:
        return torch.empty_like(parameter, dtype=element, requires_grad=False)
    return torch.empty(shape, dtype=element, device=parameter.device if kind.on_device else "cpu")


def parameter_names(model: torch.nn.Module) -> dict[int, str]:
    """The first name of each parameter, by ``id()``."""
    names: dict[int, str] = {}
    for key, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), canonical(key))
    return names


def _name_of(parameter: torch.Tensor, names: Mapping[int, str]) -> str:
    name = names.get(id(parameter))
    if name is None:
        raise StateError(
            f"the optimizer has a parameter of shape {list(parameter.shape)} that the model does not have: make the"
            " optimizer in build(), of model.parameters(), after fully_shard()"
        )
    return name


def checked(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that can be divided.

    Raises:
        StateError: it is of a kind whose parts are not rectangles of elements.
    """
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    kind = type(tensor).__name__
    if kind == "FlatParameter":
        raise StateError(f"{name} is a FlatParameter of FullyShardedDataParallel: use fully_shard() (FSDP2)")
    if type(local) not in (torch.Tensor, torch.nn.Parameter) or local.layout is not torch.strided or local.is_quantized:
        raise StateError(
            f"{name} is a {type(local).__name__} ({local.layout}), whose parts a state cannot put together"
        )
    return tensor


def canonical(name: str) -> str:
    """A name without the prefixes of wrappers."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def is_of_optimizer(name: str) -> bool:
    """Whether :func:`optimizer_name` may have made a name."""
    return name.startswith("optim.")


def optimizer_name(parameter: str, key: str) -> str:
    """The name of a tensor of an optimizer's state."""
    return f"optim.{parameter}.{key}"
