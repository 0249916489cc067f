"""Collectives on Python objects, which are sent as pickles.

Only authenticated workers of one job exchange these pickles.
"""

from __future__ import annotations

import pickle
from typing import Any, cast

from .. import lifecycle
from ..handle import Handle

__all__ = ["allgather_object", "broadcast_object"]


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """Copies the object of ``root_rank`` to all other ranks. ``root_rank`` gets the object itself.

    Args:
        obj: a picklable object. Ranks other than ``root_rank`` may pass any value.
        root_rank: rank of the object to send.
        name: name of the object in messages.

    Raises:
        ValueError: there is no rank ``root_rank``.
        TypeError: ``obj`` cannot be pickled. The other ranks then still wait for it.
    """
    queue = lifecycle.collective_queue("broadcast_object")
    if not 0 <= root_rank < queue.size:
        raise ValueError(f"broadcast_object from rank {root_rank}: there are the ranks 0 to {queue.size - 1}")
    sent = pickle.dumps(obj, protocol=5) if queue.rank == root_rank else None
    called = f"broadcast_object{f' of {name!r}' if name else ''}"
    work = queue.broadcast_bytes(sent, root_rank, called)
    own = sent is not None
    return Handle([work], lambda: obj if own else pickle.loads(cast(bytes, work.result()))).wait()


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """The objects of all ranks, in order of rank.

    Args:
        obj: a picklable object.
        name: name of the object in messages.

    Raises:
        TypeError: ``obj`` cannot be pickled. The other ranks then still wait for it.
    """
    queue = lifecycle.collective_queue("allgather_object")
    called = f"allgather_object{f' of {name!r}' if name else ''}"
    work = queue.allgather_bytes(pickle.dumps(obj, protocol=5), called)
    return Handle([work], lambda: [pickle.loads(data) for data in cast(list[bytes], work.result())]).wait()
