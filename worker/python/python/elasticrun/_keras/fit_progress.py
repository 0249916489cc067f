"""What a state keeps of an interrupted ``fit``, beside the model: the metrics of the current epoch, and values of callbacks.

``fit`` starts both anew when it is called again after a change of hosts.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy

from elasticrun.elastic import register_handler

from .metric_values import as_floats

__all__ = ["ATTRIBUTE", "CallbackValues", "FitProgress", "combined"]

#: Name of the attribute of a state that is a :class:`FitProgress`.
ATTRIBUTE = "fit_progress"

#: Commits within an epoch whose metrics are kept. The base of a round is the last commit of this worker or a newer one.
_KEPT = 4

#: Attributes that each callback object sets for itself: those of ``fit``, and ``min_delta``, whose sign Keras 3 sets at the end
#: of the first epoch of the object.
_OF_WORKER = {"model", "_model", "params", "validation_data", "min_delta"}

_SCALARS = (bool, int, float, str, bytes, type(None), numpy.generic)


class FitProgress:
    """Metrics of the current epoch, and values of callbacks.

    Metrics differ between workers, and stay in this process: the commits of all workers have the same bytes, so that a round
    begins without a transfer of the state. A restore finds the metrics of the commit, if this worker has made it.

    Attributes:
        epochs: finished epochs, of all fits.
        batches: finished batches of the current epoch.
        metrics: logs of these batches. None after a restore of a commit of another worker.
        callbacks: values of each callback of ``KeepCallbackStateCallback``. Empty before the end of the first epoch.
    """

    def __init__(self) -> None:
        self.epochs = self.batches = 0
        self.metrics: dict[str, Any] | None = {}
        self.callbacks: list[dict[str, Any]] = []
        #: Metrics by (epochs, batches), the newest last. The next round may begin within the epoch before the current one: its
        #: end is no commit before all workers have it.
        self._kept: dict[tuple[int, int], dict[str, Any]] = {}

    def finish_epoch(self) -> None:
        """Begins the next epoch."""
        self.epochs += 1
        self.batches, self.metrics = 0, {}

    def _capture(self) -> object:
        if self.batches and self.metrics is not None:
            key = self.epochs, self.batches
            self._kept.pop(key, None)
            self._kept[key] = self.metrics
            for old in list(self._kept)[:-_KEPT]:
                del self._kept[old]
        return self.epochs, self.batches, self.callbacks

    def _restore(self, epochs: int, batches: int, callbacks: list[dict[str, Any]]) -> None:
        self.epochs, self.batches, self.callbacks = epochs, batches, callbacks
        self.metrics = self._kept.get((epochs, batches)) if batches else {}


class _Handler:
    def capture(self, value: FitProgress) -> object:
        return value._capture()

    def restore(self, value: FitProgress, stored: tuple[int, int, list[dict[str, Any]]]) -> FitProgress:
        value._restore(*stored)
        return value

    def reset(self, value: FitProgress) -> None:
        pass


register_handler(FitProgress, _Handler())


def combined(
    before: Mapping[str, Any], batches_before: int, after: Mapping[str, Any], batches_after: int
) -> dict[str, Any]:
    """The metrics of an epoch from those of its two parts, weighted by their batches.

    Exact for means over batches of one size. Metrics of ``after`` that are missing in ``before``, or that are no numbers or
    arrays of one shape, are those of ``after``.
    """
    result = dict(after)
    for name in before.keys() & after.keys():
        first, second = as_floats(before[name]), as_floats(after[name])
        if first is not None and second is not None and first.shape == second.shape:
            mean = (first * batches_before + second * batches_after) / (batches_before + batches_after)
            result[name] = float(mean) if mean.shape == () else mean
    return result


class CallbackValues:
    """The values of one callback that change during ``fit``: numbers, strings, None, arrays, and lists, tuples and
    dictionaries of these.

    Other attributes, such as a path with the rank, stay those of the worker.

    Args:
        callback: the callback, before ``fit``.
    """

    def __init__(self, callback: object) -> None:
        self._callback = callback
        self._initial = copy.deepcopy(_plain(callback))
        self._changing: set[str] = set()

    def capture(self) -> dict[str, Any]:
        """A copy of the values."""
        now = _plain(self._callback)
        for name in now.keys() - self._changing:
            if name not in self._initial or not _equal(now[name], self._initial[name]):
                self._changing.add(name)
        # In the same order in all workers. Callbacks may change their lists in place.
        return {name: copy.deepcopy(now[name]) for name in sorted(self._changing & now.keys())}

    def restore(self, values: Mapping[str, Any]) -> None:
        """Sets the values to those of an earlier :meth:`capture`."""
        self._changing |= values.keys()
        vars(self._callback).update(copy.deepcopy(dict(values)))
        if "best" in values:
            _keep_best(self._callback)


def _keep_best(callback: Any) -> None:
    """Keeps ``best`` through the end of the callback's first epoch.

    The callback of a new worker then chooses how to compare. ``EarlyStopping`` of early releases of Keras 3 also resets ``best``.
    """
    choose = getattr(callback, "_set_monitor_op", None)
    if choose is None or getattr(callback, "monitor_op", None) is not None:
        return
    best = callback.best

    def choose_and_keep_best() -> None:
        vars(callback).pop("_set_monitor_op", None)
        choose()
        callback.best = best

    callback._set_monitor_op = choose_and_keep_best


def _plain(callback: object) -> dict[str, Any]:
    return {name: value for name, value in vars(callback).items() if name not in _OF_WORKER and _is_plain(value)}


def _is_plain(value: object) -> bool:
    if isinstance(value, numpy.ndarray):
        return not value.dtype.hasobject
    if type(value) is dict:
        return all(map(_is_plain, [*value.keys(), *value.values()]))
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))  # type: ignore[call-overload]
    return isinstance(value, _SCALARS)


def _equal(one: Any, other: Any) -> bool:
    """Whether two plain values are equal. NaN equals itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, numpy.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes() and one.shape == other.shape
    return bool(one == other) or (one != one and other != other)
