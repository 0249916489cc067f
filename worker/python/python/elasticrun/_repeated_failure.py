"""Warns if collectives are called after a WorkersFailed, which cannot succeed in the same round.

This happens if a training function catches the error. The next round begins only when :func:`elasticrun.elastic.run` gets it.
"""

from __future__ import annotations

import logging
import threading

from . import _native
from .errors import ElasticrunError, WorkersFailed

_log = logging.getLogger("elasticrun")

#: Driver epoch, round and thread of the newest round's first WorkersFailed.
_first: tuple[int, int, int] | None = None
#: Whether a later one of that round was warned of.
_warned = False


def note(error: ElasticrunError) -> None:
    """Records that a collective raises ``error`` to its caller. Warns once in a round, at the second WorkersFailed.

    Only the thread that got the first one counts, since collectives of other threads were called before it.
    """
    global _first, _warned
    if not isinstance(error, WorkersFailed):
        return
    world = _native.world()
    here = (world.epoch, world.round, threading.get_ident())
    if _first is None or _first[:2] != here[:2]:
        _first, _warned = here, False
    elif here == _first and not _warned:
        _warned = True
        _log.warning(
            "WorkersFailed again in round %d: the first one has not reached elastic.run. Code that catches it must raise it"
            " again, because only elastic.run continues with the next round",
            world.round,
        )
