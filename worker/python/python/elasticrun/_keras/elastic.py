"""Callbacks for elastic training with ``model.fit``. Subclasses add the base class of their Keras version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticrun import lifecycle
from elasticrun.collectives import broadcast_object
from elasticrun.elastic import State

from . import epochs
from .fit_progress import ATTRIBUTE, CallbackValues, FitProgress, combined

__all__ = ["CommitState", "KeepCallbackState", "UpdateBatchState", "UpdateEpochState"]


class CommitState:
    """Commits the state after every ``batches_per_commit`` batches, and at the end of each epoch.

    Put it after the callbacks that change the state. After the last batch of an epoch it commits only at the end of the
    epoch, so that no commit contains all batches of an epoch that is not finished.

    At the end of an epoch at which a callback such as ``EarlyStopping`` stops the training, it commits without a check for
    changed hosts. A change would call ``fit`` again, which forgets the stop.

    Args:
        state: the state.
        batches_per_commit: number of batches between commits. With ``steps_per_execution``, a commit follows the execution
            that completes them.

    Raises:
        ValueError: ``batches_per_commit`` is less than 1.
        HostsUpdated, WorkersFailed: out of ``fit``, as :meth:`elasticrun.State.commit`.
    """

    model: Any
    params: dict[str, Any]

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        if batches_per_commit < 1:
            raise ValueError(f"batches_per_commit is {batches_per_commit}: it must be 1 or more")
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit
        #: Batches of the epoch that ``fit`` has done. An execution of several batches ends with the index of its last one.
        self._done = 0
        self._stops = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        # New workers count from here, so all workers restart the count.
        self.batches_remaining = self.batches_per_commit
        self._done = 0
        self._stops = False

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self.batches_remaining -= batch + 1 - self._done
        self._done = batch + 1
        if self.batches_remaining <= 0:
            self.batches_remaining = self.batches_per_commit
            steps = self.params.get("steps")
            if not (self.model.stop_training or (steps and batch + 1 >= steps)):
                self.commit()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._done = 0
        self._stops = bool(self.model.stop_training) and self.model.stop_training is not _STOP
        self.commit()

    def commit(self) -> None:
        """Commits the state. Subclasses may extend it."""
        if self._stops:
            self.state._commit_without_check()
        else:
            self.state.commit()


class _EndOfEpoch(int):
    """A true value that marks a stop by :class:`UpdateBatchState`, which ends the current epoch only."""


_STOP = _EndOfEpoch(1)


class UpdateBatchState:
    """Sets ``state.batch`` to the number of finished batches of the epoch. It is 0 again at the end of the epoch.

    If ``fit`` knows the number of batches per epoch, the first epoch after a change of hosts has only the remaining batches.
    The script must continue at the right position in the data.

    With a ``KerasState``, the metrics at the end of that epoch are those of all its batches. Both parts count by their
    batches. This is exact for means, such as the loss, over batches of one size; it is an approximation for other metrics,
    such as AUC. New workers use rank 0's metrics for the first part. Put the callback before those that read metrics.

    Args:
        state: a state with an attribute ``batch``.
    """

    model: Any
    params: dict[str, Any]

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._done_before = 0
        #: Metrics of the batches before this ``fit``.
        self._metrics_before: dict[str, Any] = {}
        #: Batches of the epoch in this ``fit``.
        self._batches = 0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._done_before = self.state.batch
        self._batches = 0
        self._metrics_before = self._share_metrics() if self._done_before else {}
        epochs.resume(self.model, self._done_before)

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._batches = batch + 1
        self.state.batch = self._done_before + self._batches
        progress = self._progress()
        if progress is not None:
            progress.batches, progress.metrics = self.state.batch, self._whole_epoch(logs or {})
        steps = self.params.get("steps")
        if self._done_before and steps and self.state.batch >= steps:
            self.model.stop_training = _STOP

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None and self._metrics_before:
            logs.update(self._whole_epoch(logs))
        self._metrics_before = {}
        self._batches = 0
        progress = self._progress()
        if progress is not None:
            progress.finish_epoch()
        self.state.batch = self._done_before = 0
        epochs.resume(self.model, 0)
        # A stop by another callback stays in effect.
        if self.model.stop_training is _STOP:
            self.model.stop_training = False

    def _progress(self) -> FitProgress | None:
        return getattr(self.state, ATTRIBUTE, None)

    def _share_metrics(self) -> dict[str, Any]:
        """The metrics of the batches before this ``fit``. Workers without them get those of rank 0."""
        progress = self._progress()
        if progress is None:
            return {}
        metrics = progress.metrics if progress.batches == self._done_before else None
        if lifecycle.is_initialized():
            root: dict[str, Any] | None = broadcast_object(metrics, 0, "metrics of an interrupted epoch")
            metrics = metrics or root
        return metrics or {}

    def _whole_epoch(self, logs: dict[str, Any]) -> dict[str, Any]:
        if not self._metrics_before:
            return dict(logs)
        return combined(self._metrics_before, self._done_before, logs, self._batches)


class KeepCallbackState:
    """Keeps the values of other callbacks in the state, so that they go on after a change of hosts.

    ``fit`` is called again after a change. ``EarlyStopping`` and ``ReduceLROnPlateau`` then forget the best metric and how
    many epochs they have waited. The ``ModelCheckpoint`` of a new worker forgets the best metric. This callback keeps what
    changes during training: attributes that are numbers, strings, None or arrays, or lists, tuples or dictionaries of these.
    Weights that a callback keeps (``restore_best_weights=True``) are part of each commit.

    Put it after the callbacks that it keeps, and before ``CommitStateCallback``.

    Args:
        state: a ``KerasState``.
        callbacks: the callbacks, the same list in all workers. They must also be callbacks of ``fit``.

    Raises:
        TypeError: ``state`` is of another type.
    """

    def __init__(self, state: Any, callbacks: Sequence[Any]) -> None:
        super().__init__()
        if not hasattr(state, ATTRIBUTE):
            raise TypeError(f"the state must be a KerasState, not an object of type {type(state).__name__}")
        self.state = state
        self._values = [CallbackValues(callback) for callback in callbacks]

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        # There are none before the end of the first epoch.
        for values, kept in zip(self._values, self._progress.callbacks, strict=False):
            values.restore(kept)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._progress.callbacks = [values.capture() for values in self._values]

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        # Another fit of this script starts without them.
        self._progress.callbacks = []

    @property
    def _progress(self) -> FitProgress:
        progress: FitProgress = getattr(self.state, ATTRIBUTE)
        return progress


class UpdateEpochState:
    """Sets ``state.epoch`` to the number of finished epochs, over all rounds.

    Use it with ``fit(epochs=N - state.epoch)`` or ``fit(epochs=N, initial_epoch=state.epoch)``. With the latter, learning
    rate schedules see the right epoch.

    Args:
        state: a state with an attribute ``epoch``.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._before: int | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._before = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._before is None:
            self._before = self.state.epoch - epoch

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        assert self._before is not None, "set when the epoch began"
        self.state.epoch = self._before + epoch + 1
