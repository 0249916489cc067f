"""State handlers of modules, optimizers and schedulers, which a restore updates in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from elasticrun.elastic import register_handler
from elasticrun.errors import StateError

from .. import optimizer_state
from .tensors import StateTensor, refuse_sharded
from .zero import is_zero


class ModuleHandler:
    """Stores a module's ``state_dict()``. A restore fills its parameters and buffers in place."""

    def capture(self, value: torch.nn.Module) -> object:
        """See :class:`~elasticrun.elastic.Handler`."""
        state = _parts(value.state_dict(), type(value).__qualname__)
        for name, _ in value.named_parameters(remove_duplicate=False):
            if isinstance(state.get(name), StateTensor):
                state[name].trained = True
        return state

    def restore(self, value: torch.nn.Module, stored: Mapping[str, Any]) -> torch.nn.Module:
        """See :class:`~elasticrun.elastic.Handler`.

        Raises:
            StateError: the module has other parameters than the stored one, or keeps references to tensors that it loads.
        """
        copied = _reference_keepers(value)
        loaded = {
            key: part.tensor
            if isinstance(part, StateTensor) and not key.startswith(copied) and not _is_extra(key)
            else _copies(part)
            for key, part in stored.items()
        }
        try:
            value.load_state_dict(loaded)
        except RuntimeError as error:
            raise StateError(f"the stored state does not fit the model: {error}") from error
        loaded.clear()
        for key, part in stored.items():
            if isinstance(part, StateTensor) and not part.release():
                raise StateError(
                    f"{type(value).__qualname__} keeps the tensor {key!r} that its load_state_dict() is given, which"
                    " lies in committed memory: copy it there"
                )
        return value

    def reset(self, value: torch.nn.Module) -> None:
        """See :class:`~elasticrun.elastic.Handler`."""


class OptimizerHandler:
    """Stores an optimizer's ``state_dict()``. A restore fills matching tensors in place."""

    def capture(self, value: torch.optim.Optimizer) -> object:
        """See :class:`~elasticrun.elastic.Handler`.

        Raises:
            StateError: each worker holds a shard of the state.
        """
        if is_zero(value):
            raise StateError(
                "ZeroRedundancyOptimizer keeps a shard of its state in each worker, and a state is replicated: use"
                " ShardedState, whose build() makes it in each round, or the optimizer that it wraps"
            )
        return _parts(value.state_dict(), type(value).__qualname__)

    def restore(self, value: torch.optim.Optimizer, stored: dict[str, Any]) -> torch.optim.Optimizer:
        """See :class:`~elasticrun.elastic.Handler`.

        Raises:
            StateError: the optimizer has other parameters than the stored one.
        """
        live = value.state_dict()["state"]
        state = {index: _filled(entry, live.get(index)) for index, entry in stored["state"].items()}
        rest = {key: _copies(part) for key, part in stored.items() if key != "state"}
        try:
            optimizer_state.load(value, {**rest, "state": state})
        except (ValueError, KeyError) as error:
            raise StateError(f"the stored state does not fit the optimizer: {error}") from error
        # Accumulated gradients belong to a step that will be repeated.
        optimizer_state.forget_gradients(value)
        return value

    def reset(self, value: torch.optim.Optimizer) -> None:
        """See :class:`~elasticrun.elastic.Handler`. Discards accumulated gradients, which new workers do not have."""
        optimizer_state.forget_gradients(value)


class SchedulerHandler:
    """Stores a scheduler's ``state_dict()``. The scheduler stays bound to its optimizer."""

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
    """``value`` with each dense tensor as a :class:`StateTensor`."""
    if isinstance(value, torch.Tensor):
        refuse_sharded(value, name)
        plain = type(value) in (torch.Tensor, torch.nn.Parameter)
        dense = value.layout is torch.strided and not value.is_quantized
        return StateTensor(value) if plain and dense else value
    if isinstance(value, Mapping):
        return {key: _parts(item, f"{name}[{key!r}]") for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_parts(item, name) for item in value)
    return value


def _reference_keepers(module: torch.nn.Module) -> tuple[str, ...]:
    """Name prefixes of tensors to which ``module`` may keep references when it loads them, instead of copying the values."""
    if not _is_torch_method(type(module).load_state_dict):
        return ("",)
    return tuple(
        f"{name}." if name else ""
        for name, part in module.named_modules(remove_duplicate=False)
        if part._load_state_dict_pre_hooks
        or part._load_state_dict_post_hooks
        or not _is_torch_method(type(part)._load_from_state_dict)
    )


def _is_torch_method(method: Any) -> bool:
    """Whether the method is torch's own, which copies values."""
    return str(method.__module__).startswith("torch.nn.")


def _is_extra(key: str) -> bool:
    """Whether the entry is passed to a module's ``set_extra_state()``, which may keep a reference."""
    return key.rpartition(".")[2] == "_extra_state"


def _copies(value: Any) -> Any:
    """``value`` with a copied tensor for each :class:`StateTensor`."""
    if isinstance(value, StateTensor):
        return value.tensor.clone()
    if isinstance(value, dict):
        return {key: _copies(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copies(item) for item in value)
    return value


def _filled(stored: Any, live: Any) -> Any:
    """The stored value, in the tensors of ``live`` where they match."""
    if isinstance(stored, StateTensor):
        tensor = stored.tensor
        fits = isinstance(live, torch.Tensor) and live.shape == tensor.shape and live.dtype == tensor.dtype
        if not fits:
            return tensor.clone()
        with torch.no_grad():
            return live.copy_(tensor)
    if isinstance(stored, dict):
        live = live if isinstance(live, dict) else {}
        return {key: _filled(item, live.get(key)) for key, item in stored.items()}
    return _copies(stored)


register_handler(torch.nn.Module, ModuleHandler())
register_handler(torch.optim.Optimizer, OptimizerHandler())
register_handler(torch.optim.lr_scheduler.LRScheduler, SchedulerHandler())
register_handler(torch.optim.lr_scheduler.ReduceLROnPlateau, SchedulerHandler())
