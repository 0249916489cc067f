"""Attributes of a state that are more than values: what is stored of them, and how it is put back.

A sampler is held by a loader of data, a model by an optimizer. They stay the objects that they are, and take
over what was stored.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from ..sampler import ElasticSampler

__all__ = ["Handler", "JointHandler", "handler_of", "register_handler"]


class Handler(Protocol):
    """How attributes of one type are kept. Has no state of its own."""

    def capture(self, value: Any) -> object:
        """What is stored of ``value``: a value of its own, or parts of ``value`` as they are."""

    def restore(self, value: Any, stored: Any) -> Any:
        """What the attribute is from now on: ``value`` after it took over what was stored, or another one."""

    def reset(self, value: Any) -> None:
        """Adapts ``value`` to a new world; called at the start of each round, after the state is restored."""


@runtime_checkable
class JointHandler(Handler, Protocol):
    """Of attributes that workers keep together, so that they have to talk to each other about them."""

    def enter(self, value: Any) -> None:
        """At the start of each round, in all workers, after :meth:`Handler.reset`. Collectives may be called."""

    def agree(self, value: Any) -> None:
        """Before each commit, in all workers: ``capture`` follows. Collectives may be called."""

    def committed(self, value: Any) -> None:
        """The commit is made by this process."""


_HANDLERS: dict[type, Handler] = {}


def register_handler(kind: type, handler: Handler) -> None:
    """Has attributes of ``kind`` and its subclasses kept by ``handler``."""
    _HANDLERS[kind] = handler


def handler_of(value: object) -> Handler | None:
    """The handler of ``value``; none if it is stored as it is."""
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
