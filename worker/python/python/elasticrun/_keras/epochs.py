"""Batches of the current epoch that a model finished in an earlier round.

``fit`` counts the batches of a resumed epoch from 0 again. Callbacks that depend on the position in the epoch add this number.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["batches_before", "resume"]

_DONE: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def resume(model: Any, batches: int) -> None:
    """Records that ``batches`` of the current epoch of ``model`` were finished before this ``fit``."""
    _DONE[model] = batches


def batches_before(model: Any) -> int:
    """Number of batches of the current epoch that were finished before this ``fit``."""
    return _DONE.get(model, 0)
