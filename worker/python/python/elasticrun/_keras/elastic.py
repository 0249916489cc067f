"""Callbacks for elastic training by ``model.fit``, without the base class of Keras."""

from __future__ import annotations

from typing import Any

from elasticrun.elastic import State

from . import epochs

__all__ = ["CommitState", "UpdateBatchState", "UpdateEpochState"]


class CommitState:
    """Commits the state after every ``batches_per_commit`` batches, and at the end of each epoch.

    Put it behind the callbacks that change the state. After the last batch of an epoch it leaves the commit to
    the end of the epoch, so that no commit says that all batches are done and the epoch is not.

    Args:
        state: the state.
        batches_per_commit: batches from commit to commit.

    Raises:
        ValueError: ``batches_per_commit`` is less than 1.
        HostsUpdated, WorkersFailed: as :meth:`elasticrun.State.commit`, out of ``fit``.
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
        # Newcomers count from here, so all do.
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
        """Commits the state; to be extended by subclasses."""
        self.state.commit()


class _EndOfEpoch(int):
    """A true value that says who stopped the training, and that it is for this epoch only."""


_STOP = _EndOfEpoch(1)


class UpdateBatchState:
    """Keeps in ``state.batch`` how many batches of the epoch are done: 0 again at its end.

    The first epoch after a change of hosts is as much shorter as was done of it before, if ``fit`` knows how
    many batches an epoch has. Where to go on in the data is the script's affair.

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
        # What another callback stopped stays stopped.
        if self.model.stop_training is _STOP:
            self.model.stop_training = False


class UpdateEpochState:
    """Keeps in ``state.epoch`` how many epochs are done, over all rounds.

    For ``fit(epochs=N - state.epoch)`` as well as for ``fit(epochs=N, initial_epoch=state.epoch)``, with which
    schedules of learning rates see the right epoch.

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
