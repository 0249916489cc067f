"""barrier: waits until all ranks have called it."""

from __future__ import annotations

from typing import Any

from elasticrun.process_sets import global_process_set, require_global

from .mismatch_check import Announcement, Call
from .rounds import host_transport


def barrier(process_set: Any = global_process_set) -> None:
    """Blocks until all ranks have called it.

    Raises:
        WorkersFailed: the round is over.
        CollectiveMismatch: a rank made a different call.
    """
    require_global(process_set)
    # An announcement acts as a barrier, because it gathers data of all ranks.
    Announcement(host_transport("barrier"), Call("barrier")).check()
