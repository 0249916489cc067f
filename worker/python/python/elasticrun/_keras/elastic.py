"""Callbacks for elastic training with ``model.fit``. Subclasses add the base class of their Keras version."""

from __future__ import annotations

from typing import Any

from elasticrun.elastic import State

from . import epochs

__all__ = ["CommitState", "UpdateBatchState", "UpdateEpochState"]


class CommitState:
    """Commits the state after every ``batches_per_commit`` batches, and at the end of each epoch.

    Put it after the callbacks that change the state. After the last batch of an epoch it commits only at the end of the
    epoch, so that no commit contains all batches of an epoch that is not finished.

    Args:
        state: the state.
        batches_per_commit: number of batches between commits.

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

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        # New workers count from here, so all workers restart the count.
        self.batches_remaining = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining = self.batches_per_commit
            steps = self.params.get("steps")
            if not (self.model.stop_training or (steps and batch + 1 >= steps)):
                self.commit()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.commit()

    def commit(self) -> None:
        """Commits the state. Subclasses may extend it."""
        self.state.commit()


class _EndOfEpoch(int):
    """A true value that marks a stop by :class:`UpdateBatchState`, which ends the current epoch only."""


_STOP = _EndOfEpoch(1)


class UpdateBatchState:
    """Sets ``state.batch`` to the number of finished batches of the epoch. It is 0 again at the end of the epoch.

    If ``fit`` knows the number of batches per epoch, the first epoch after a change of hosts has only the remaining batches.
    The script must continue at the right position in the data.

    Args:
        state: a state with an attribute ``batch``.
    """

    model: Any
    params: dict[str, Any]

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._done_before = 0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._done_before = self.state.batch
        epochs.resume(self.model, self._done_before)

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self.state.batch = self._done_before + batch + 1
        steps = self.params.get("steps")
        if self._done_before and steps and self.state.batch >= steps:
            self.model.stop_training = _STOP

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.state.batch = self._done_before = 0
        epochs.resume(self.model, 0)
        # A stop by another callback stays in effect.
        if self.model.stop_training is _STOP:
            self.model.stop_training = False


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
