"""Collectives on Python objects, with Horovod's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from elasticrun import collectives
from elasticrun.process_sets import global_process_set, require_global

__all__ = [
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
]


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: None = None,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> Any:
    """Copies the object of rank ``root_rank`` to all ranks: see :func:`elasticrun.broadcast_object`.

    ``session`` is accepted for Horovod compatibility, without effect.
    """
    require_global(process_set)
    return collectives.broadcast_object(obj, root_rank, name)


def broadcast_object_fn(
    root_rank: int = 0,
    session: None = None,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> Callable[[Any], Any]:
    """:func:`broadcast_object` as a function of the object only."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any, session: None = None, name: str | None = None, process_set: Any = global_process_set
) -> list[Any]:
    """The objects of all ranks, in order of rank: see :func:`elasticrun.allgather_object`."""
    require_global(process_set)
    return collectives.allgather_object(obj, name)


def broadcast_global_variables(root_rank: int) -> NoReturn:
    """Refused: TensorFlow 2 has no global variables.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "broadcast_global_variables: TensorFlow 2 has no global variables; use broadcast_variables(model.variables,"
        f" root_rank={root_rank}), or BroadcastGlobalVariablesCallback with Keras"
    )
