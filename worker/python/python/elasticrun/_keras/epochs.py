"""How many batches of its epoch a model had done before ``fit`` began: those of an epoch that another round began.

``fit`` counts the batches of such an epoch from 0 again. What follows the place in an epoch asks here.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["begun", "resume"]

_DONE: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def resume(model: Any, batches: int) -> None:
    """The epoch that ``model`` is in has that many batches behind it that this ``fit`` does not count."""
    _DONE[model] = batches


def begun(model: Any) -> int:
    """Batches of the current epoch that this ``fit`` does not count."""
    return _DONE.get(model, 0)
