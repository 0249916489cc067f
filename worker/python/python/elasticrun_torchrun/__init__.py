"""The entry point ``torchrun.handlers`` of elasticrun.

torch loads it in each process that imports its rendezvous, whatever the back end. So it is a package of its own, which imports
nothing until a handler is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters


def create_handler(params: RendezvousParameters) -> RendezvousHandler:
    """See :func:`elasticrun.torch.rendezvous.create_handler`."""
    from elasticrun.torch import rendezvous

    return rendezvous.create_handler(params)


def handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """What torch registers for ``--rdzv-backend=elasticrun``."""
    return create_handler
