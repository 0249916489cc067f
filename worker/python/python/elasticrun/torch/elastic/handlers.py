"""Modules and optimizers in a state: they stay the objects that they are, and take over what was stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from elasticrun.elastic import register_handler
from elasticrun.errors import StateError

from .tensors import Part, refuse_sharded


class ModuleHandler:
    """A module's ``state_dict()``; its parameters and buffers are filled in place."""

    def capture(self, value: torch.nn.Module) -> object:
        """See :class:`~elasticrun.elastic.Handler`."""
        return _parts(value.state_dict(), type(value).__qualname__)

    def restore(self, value: torch.nn.Module, stored: Mapping[str, Any]) -> torch.nn.Module:
        """See :class:`~elasticrun.elastic.Handler`.

        Raises:
            StateError: the module has other parameters than the one that was stored.
        """
        # load_state_dict copies tensors; extra state may be kept, so it gets tensors of its own.
        own = {
            key: part.tensor if isinstance(part, Part) else _copies(part)
            for key, part in stored.items()
        }
        try:
            value.load_state_dict(own)
        except RuntimeError as error:
            raise StateError(f"the stored state does not fit the model: {error}") from error
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

    def restore(
        self, value: torch.optim.Optimizer, stored: dict[str, Any]
    ) -> torch.optim.Optimizer:
        """See :class:`~elasticrun.elastic.Handler`.

        Raises:
            StateError: the optimizer has other parameters than the one that was stored.
        """
        live = value.state_dict()["state"]
        state = {index: _taken(entry, live.get(index)) for index, entry in stored["state"].items()}
        rest = {key: _copies(part) for key, part in stored.items() if key != "state"}
        try:
            value.load_state_dict({**rest, "state": state})
        except (ValueError, KeyError) as error:
            raise StateError(f"the stored state does not fit the optimizer: {error}") from error
        # What was accumulated belongs to a step that is done again.
        for group in value.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
        return value

    def reset(self, value: torch.optim.Optimizer) -> None:
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
        fits = (
            isinstance(live, torch.Tensor)
            and live.shape == tensor.shape
            and live.dtype == tensor.dtype
        )
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
