"""Handlers: how attributes of a state that are not plain values are stored and restored.

Other objects hold references to such attributes: a data loader to its sampler, an optimizer to the parameters of its model.
A restore therefore updates the object instead of replacing it.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from ..sampler import ElasticSampler

__all__ = ["Handler", "JointHandler", "handler_of", "register_handler"]


class Handler(Protocol):
    """Stores and restores attributes of one type. A handler has no state."""

    def capture(self, value: Any) -> object:
        """The part of ``value`` to store: a copy, or references to parts of ``value``."""

    def restore(self, value: Any, stored: Any) -> Any:
        """Restores ``value`` from ``stored``. Returns the new value of the attribute: ``value`` itself or another object."""

    def reset(self, value: Any) -> None:
        """Adapts ``value`` to the members of a round. Called at the start of each round, after the state is restored."""


@runtime_checkable
class JointHandler(Handler, Protocol):
    """A handler of attributes that workers store together, and therefore coordinate."""

    def enter(self, value: Any) -> None:
        """Called at the start of each round in all workers, after :meth:`Handler.reset`. It may call collectives."""

    def agree(self, value: Any) -> None:
        """Called before each commit in all workers; ``capture`` follows. It may call collectives."""

    def committed(self, value: Any) -> None:
        """Called after this process has made the commit."""


_HANDLERS: dict[type, Handler] = {}


def register_handler(kind: type, handler: Handler) -> None:
    """Registers ``handler`` for attributes of type ``kind`` and its subclasses."""
    _HANDLERS[kind] = handler


def handler_of(value: object) -> Handler | None:
    """The handler of ``value``; None if it is stored as a plain value."""
    return next((_HANDLERS[base] for base in type(value).__mro__ if base in _HANDLERS), None)


class _SamplerHandler:
    def capture(self, value: ElasticSampler) -> object:
        return value.state_dict()

    def restore(self, value: ElasticSampler, stored: Any) -> ElasticSampler:
        value.load_state_dict(stored)
        return value

    def reset(self, value: ElasticSampler) -> None:
        value.reset()


register_handler(ElasticSampler, _SamplerHandler())
