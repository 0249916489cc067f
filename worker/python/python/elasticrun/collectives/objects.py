"""Python objects from rank to rank, as pickles.

They cross between the workers of one job only, which have proved to each other that they belong to it.
"""

from __future__ import annotations

import pickle
from typing import Any, cast

from .. import lifecycle

__all__ = ["allgather_object", "broadcast_object"]


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """The object of ``root_rank``, on all ranks: there itself, elsewhere a copy.

    Args:
        obj: what can be pickled; looked at on ``root_rank`` only.
        root_rank: whose object it is.
        name: for messages.

    Raises:
        ValueError: there is no rank ``root_rank``.
        TypeError: ``obj`` cannot be pickled. The other ranks wait for it then.
    """
    lane = lifecycle.lane("broadcast_object")
    if not 0 <= root_rank < lane.size:
        raise ValueError(f"broadcast_object from rank {root_rank}: there are the ranks 0 to {lane.size - 1}")
    own = pickle.dumps(obj, protocol=5) if lane.rank == root_rank else None
    called = f"broadcast_object{f' of {name!r}' if name else ''}"
    work = lane.broadcast_bytes(own, root_rank, called)
    work.wait()
    return obj if own is not None else pickle.loads(cast(bytes, work.result()))


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """The objects of all ranks, in order of rank.

    Args:
        obj: what can be pickled.
        name: for messages.

    Raises:
        TypeError: ``obj`` cannot be pickled. The other ranks wait for it then.
    """
    lane = lifecycle.lane("allgather_object")
    called = f"allgather_object{f' of {name!r}' if name else ''}"
    work = lane.allgather_bytes(pickle.dumps(obj, protocol=5), called)
    work.wait()
    return [pickle.loads(data) for data in cast(list[bytes], work.result())]
