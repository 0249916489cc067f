"""Errors of this package as those of torch's rendezvous."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousStateError,
    RendezvousTimeoutError,
)

from elasticrun import errors

P = ParamSpec("P")
R = TypeVar("R")

_CLASSES: dict[type[errors.RendezvousError], type[RendezvousError]] = {
    errors.RendezvousClosed: RendezvousClosedError,
    errors.RendezvousTimeout: RendezvousTimeoutError,
    errors.RendezvousUnreachable: RendezvousConnectionError,
    errors.RendezvousCorrupt: RendezvousStateError,
}


def with_errors_of_torch(method: Callable[P, R]) -> Callable[P, R]:
    """Raises errors of a rendezvous as those that torch's agent knows."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except errors.RendezvousReleased as released:
            # torch's agent ends in order by this alone: after RendezvousGracefulExitError its launcher fails.
            raise SystemExit(0) from released
        except errors.RendezvousError as error:
            # One line is enough: the causes are in its text.
            raise _CLASSES.get(type(error), RendezvousError)(str(error)) from None

    return call
