"""barrier: waits until all ranks are here."""

from __future__ import annotations

from typing import Any

from elasticrun.process_sets import global_process_set, require_global

from .announce import Announcement, Call
from .rounds import host_transport


def barrier(process_set: Any = global_process_set) -> None:
    """Blocks until all ranks have called it.

    Raises:
        WorkersFailed: the round is over.
        CollectiveMismatch: a rank called something else.
    """
    require_global(process_set)
    # An announcement is a barrier: it has the words of all ranks.
    Announcement(host_transport("barrier"), Call("barrier")).check()
