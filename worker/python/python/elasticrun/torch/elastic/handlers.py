"""Modules and optimizers in a state: they stay the objects that they are, and take over what was stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from elasticrun.elastic import register_handler
from elasticrun.errors import StateError

from .. import optimizer_state
from .tensors import Part, refuse_sharded


class ModuleHandler:
    """A module's ``state_dict()``; its parameters and buffers are filled in place."""

    def capture(self, value: torch.nn.Module) -> object:
        """See :class:`~elasticrun.elastic.Handler`."""
        state = _parts(value.state_dict(), type(value).__qualname__)
        for name, _ in value.named_parameters(remove_duplicate=False):
            if isinstance(state.get(name), Part):
                state[name].trained = True
        return state

    def restore(self, value: torch.nn.Module, stored: Mapping[str, Any]) -> torch.nn.Module:
        """See :class:`~elasticrun.elastic.Handler`.

        Raises:
            StateError: the module has other parameters than the one that was stored, or keeps tensors that it loads.
        """
        copied = _keepers(value)
        own = {
            key: part.tensor
            if isinstance(part, Part) and not key.startswith(copied) and not _is_extra(key)
            else _copies(part)
            for key, part in stored.items()
        }
        try:
            value.load_state_dict(own)
        except RuntimeError as error:
            raise StateError(f"the stored state does not fit the model: {error}") from error
        own.clear()
        for key, part in stored.items():
            if isinstance(part, Part) and not part.let_go():
                raise StateError(
                    f"{type(value).__qualname__} keeps the tensor {key!r} that its load_state_dict() is given, which"
                    " lies in committed memory: copy it there"
                )
        return value

    def reset(self, value: torch.nn.Module) -> None:
        """See :class:`~elasticrun.elastic.Handler`."""


class OptimizerHandler:
    """An optimizer's ``state_dict()``; tensors of its state that fit are filled in place."""

    def capture(self, value: torch.optim.Optimizer) -> object:
        """See :class:`~elasticrun.elastic.Handler`.

        Raises:
            StateError: each worker holds a shard of the state.
        """
        if any(base.__name__ == "ZeroRedundancyOptimizer" for base in type(value).__mro__):
            raise StateError(
                "ZeroRedundancyOptimizer keeps a shard of its state in each worker, and a state is "
                "replicated: use the optimizer that it wraps"
            )
        return _parts(value.state_dict(), type(value).__qualname__)

    def restore(self, value: torch.optim.Optimizer, stored: dict[str, Any]) -> torch.optim.Optimizer:
        """See :class:`~elasticrun.elastic.Handler`.

        Raises:
            StateError: the optimizer has other parameters than the one that was stored.
        """
        live = value.state_dict()["state"]
        state = {index: _taken(entry, live.get(index)) for index, entry in stored["state"].items()}
        rest = {key: _copies(part) for key, part in stored.items() if key != "state"}
        try:
            optimizer_state.load(value, {**rest, "state": state})
        except (ValueError, KeyError) as error:
            raise StateError(f"the stored state does not fit the optimizer: {error}") from error
        # What was accumulated belongs to a step that is done again.
        optimizer_state.forget_gradients(value)
        return value

    def reset(self, value: torch.optim.Optimizer) -> None:
        """See :class:`~elasticrun.elastic.Handler`. Newcomers have accumulated nothing, so nobody has."""
        optimizer_state.forget_gradients(value)


class SchedulerHandler:
    """A scheduler's ``state_dict()``; it stays bound to the optimizer that it changes."""

    def capture(self, value: Any) -> object:
        """See :class:`~elasticrun.elastic.Handler`."""
        return value.state_dict()

    def restore(self, value: Any, stored: Any) -> Any:
        """See :class:`~elasticrun.elastic.Handler`."""
        value.load_state_dict(stored)
        return value

    def reset(self, value: Any) -> None:
        """See :class:`~elasticrun.elastic.Handler`."""


def _parts(value: Any, name: str) -> Any:
    """``value`` with each dense tensor as a :class:`Part`."""
    if isinstance(value, torch.Tensor):
        refuse_sharded(value, name)
        plain = type(value) in (torch.Tensor, torch.nn.Parameter)
        dense = value.layout is torch.strided and not value.is_quantized
        return Part(value) if plain and dense else value
    if isinstance(value, Mapping):
        return {key: _parts(item, f"{name}[{key!r}]") for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_parts(item, name) for item in value)
    return value


def _keepers(module: torch.nn.Module) -> tuple[str, ...]:
    """How the names of tensors begin that ``module`` may keep when it loads them, instead of copying their values."""
    if not _is_torchs(type(module).load_state_dict):
        return ("",)
    return tuple(
        f"{name}." if name else ""
        for name, part in module.named_modules(remove_duplicate=False)
        if part._load_state_dict_pre_hooks
        or part._load_state_dict_post_hooks
        or not _is_torchs(type(part)._load_from_state_dict)
    )


def _is_torchs(method: Any) -> bool:
    """Whether torch has written it: then it copies values."""
    return str(method.__module__).startswith("torch.nn.")


def _is_extra(key: str) -> bool:
    """Whether it is what a module's ``set_extra_state()`` gets, and may keep."""
    return key.rpartition(".")[2] == "_extra_state"


def _copies(value: Any) -> Any:
    """``value`` with a tensor of its own for each :class:`Part`."""
    if isinstance(value, Part):
        return value.tensor.clone()
    if isinstance(value, dict):
        return {key: _copies(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copies(item) for item in value)
    return value


def _taken(stored: Any, live: Any) -> Any:
    """What was stored, in the tensors of ``live`` where they fit."""
    if isinstance(stored, Part):
        tensor = stored.tensor
        fits = isinstance(live, torch.Tensor) and live.shape == tensor.shape and live.dtype == tensor.dtype
        if not fits:
            return tensor.clone()
        with torch.no_grad():
            return live.copy_(tensor)
    if isinstance(stored, dict):
        live = live if isinstance(live, dict) else {}
        return {key: _taken(item, live.get(key)) for key, item in stored.items()}
    return _copies(stored)


register_handler(torch.nn.Module, ModuleHandler())
register_handler(torch.optim.Optimizer, OptimizerHandler())
register_handler(torch.optim.lr_scheduler.LRScheduler, SchedulerHandler())
register_handler(torch.optim.lr_scheduler.ReduceLROnPlateau, SchedulerHandler())
