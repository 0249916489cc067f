"""Callbacks for model.fit, called in the order of Keras by a fit without Keras."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy
import pytest

from elasticrun._keras.elastic import CommitState, KeepCallbackState, UpdateBatchState, UpdateEpochState
from elasticrun._keras.fit_progress import CallbackValues, FitProgress, combined
from elasticrun.elastic import ObjectState

STEPS = 4


class Change(Exception):
    """The hosts change."""


class Model:
    stop_training = False


class State(ObjectState):
    """A state of fit whose commits the process keeps. The boundary of a commit raises in ``change_at``."""

    def __init__(self, change_at=()):
        super().__init__(epoch=0, batch=0, fit_progress=FitProgress())
        self.change_at = list(change_at)
        self.commits = []

    def commit(self, async_=False):
        self._commit_without_check()
        if self.change_at and (self.epoch, self.batch) == self.change_at[0]:
            del self.change_at[0]
            raise Change

    def _commit_without_check(self):
        self.save()
        self.commits.append((self.epoch, self.batch))
        return True


class EarlyStopping:
    """As Keras has it: waits for ``patience`` epochs without a lower loss, and starts anew in each fit."""

    def __init__(self, patience):
        self.patience = patience
        self.path = f"of worker {id(self)}"
        self.monitor_op = numpy.less

    def on_train_begin(self, logs=None):
        self.wait, self.best, self.best_weights = 0, math.inf, None

    def on_epoch_end(self, epoch, logs=None):
        self.wait += 1
        if self.monitor_op(logs["loss"], self.best):
            self.best, self.wait, self.best_weights = logs["loss"], 0, [numpy.full(2, logs["loss"])]
        if self.wait >= self.patience:
            self.model.stop_training = True


class MonitorCallback:
    """As Keras 3 has it: the end of the first epoch sets ``monitor_op`` and the sign of ``min_delta``, in each object."""

    def __init__(self, resets_best):
        self.min_delta = 1e-4
        self.monitor_op = self.best = None
        self.wait = 0
        #: As EarlyStopping of early releases of Keras 3.
        self.resets_best = resets_best

    def _set_monitor_op(self):
        self.monitor_op = numpy.less
        self.min_delta *= -1
        if self.resets_best:
            self.best = math.inf

    def on_epoch_end(self, epoch, logs=None):
        if self.monitor_op is None:
            self._set_monitor_op()
        self.wait += 1
        if self.best is None or self.monitor_op(logs["loss"] - self.min_delta, self.best):
            self.best, self.wait = logs["loss"], 0


class Seen:
    def __init__(self):
        self.logs = []

    def on_epoch_end(self, epoch, logs=None):
        self.logs.append(dict(logs))


def fit(callbacks, loss, epochs, initial_epoch=0, done=0, execution=1):
    """Calls ``callbacks`` as Keras does. ``done`` batches of the first epoch belong to an earlier fit.

    ``loss(epoch, batch)`` is that of a batch of the whole epoch. Logs are means over the batches of this fit.
    """
    model = Model()
    for callback in callbacks:
        callback.model, callback.params = model, {"steps": STEPS}

    def call(name, *arguments):
        for callback in callbacks:
            getattr(callback, name, lambda *_: None)(*arguments)

    call("on_train_begin", None)
    for epoch in range(initial_epoch, epochs):
        call("on_epoch_begin", epoch, None)
        total = 0.0
        for batch in range(STEPS):
            total += loss(epoch, done + batch)
            logs = {"loss": total / (batch + 1)}
            if (batch + 1) % execution == 0:
                call("on_batch_end", batch, logs)
            if model.stop_training:
                break
        call("on_epoch_end", epoch, logs)
        done = 0
        if model.stop_training:
            break
    call("on_train_end", None)


def train(state, callbacks, loss, epochs):
    """As elastic.run does: calls fit again with the newest commit after each change."""
    while True:
        try:
            return fit(callbacks, loss, epochs, state.epoch, state.batch)
        except Change:
            state.restore()


@pytest.mark.parametrize("changes", [[], [(1, 3)], [(1, 1), (1, 3)], [(1, 2), (2, 0), (2, 1)]])
def test_metrics_of_an_epoch_that_was_cut_in_two_are_those_of_the_whole(changes):
    state, seen = State(changes), Seen()
    callbacks = [UpdateEpochState(state), UpdateBatchState(state), seen, CommitState(state)]
    train(state, callbacks, lambda epoch, batch: 10.0 * epoch + batch, epochs=3)
    assert not state.change_at
    assert [logs["loss"] for logs in seen.logs] == pytest.approx([1.5, 11.5, 21.5])
    assert (state.epoch, state.batch) == (3, 0)


def test_metrics_of_an_epoch_stay_until_its_end_is_committed():
    """A worker dies at the end of an epoch, such as in a callback that averages the metrics."""

    class Fails:
        failed = False

        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1 and not self.failed:
                self.failed = True
                raise Change

    state, seen = State(), Seen()
    fails = Fails()
    callbacks = [UpdateEpochState(state), UpdateBatchState(state), fails, seen, CommitState(state)]
    train(state, callbacks, lambda epoch, batch: 10.0 * epoch + batch, epochs=3)
    assert fails.failed
    assert [logs["loss"] for logs in seen.logs] == pytest.approx([1.5, 11.5, 21.5])


def test_metrics_are_those_of_the_commit_that_is_restored():
    state = State()
    progress = state.fit_progress
    progress.batches, progress.metrics = 3, {"loss": 1.0}
    within = state._payload()
    progress.finish_epoch()
    state._payload()
    # The commit at the end of the epoch was not completed: another worker had died.
    state._load(within.head, [])
    assert (progress.epochs, progress.batches, progress.metrics) == (0, 3, {"loss": 1.0})
    # This commit of the next epoch is one of other workers. Its metrics are not those of the epoch before.
    other = State()
    other.fit_progress.finish_epoch()
    other.fit_progress.batches = 3
    state._load(other._payload().head, [])
    assert (progress.epochs, progress.batches, progress.metrics) == (1, 3, None)


def test_a_new_worker_continues_with_the_metrics_of_rank_0(start):
    text = start.job(
        "-np 2",
        """
        from types import SimpleNamespace
        import elasticrun as e
        from elasticrun._keras.elastic import UpdateBatchState
        from elasticrun._keras.fit_progress import FitProgress

        class Model:
            stop_training = False

        e.init()
        state = SimpleNamespace(batch=3, fit_progress=FitProgress())
        if e.rank() == 0:
            state.fit_progress.batches, state.fit_progress.metrics = 3, {"loss": 8.0}
        update = UpdateBatchState(state)
        update.model, update.params = Model(), {"steps": 4}
        update.on_train_begin()
        update.on_batch_end(0, {"loss": 0.0})
        logs = {"loss": 0.0}
        update.on_epoch_end(0, logs)
        print("LOGS", logs)
        """,
    ).succeed()
    assert text.count("LOGS {'loss': 6.0}") == 2


def test_commits_of_workers_with_different_metrics_have_the_same_bytes():
    heads = []
    for loss in (1.0, 2.0):
        state = State()
        state.batch = 1
        state.fit_progress.batches, state.fit_progress.metrics = 1, {"loss": loss}
        payload = state._payload()
        assert not payload.buffers
        heads.append(payload.head)
        state.fit_progress.batches, state.fit_progress.metrics = 2, {"loss": 7.0}
        state._load(payload.head, [])
        assert (state.fit_progress.batches, state.fit_progress.metrics) == (1, {"loss": loss})
    assert heads[0] == heads[1]
    other = State()
    other._load(heads[0], [])
    assert (other.fit_progress.batches, other.fit_progress.metrics) == (1, None)


def test_metrics_that_cannot_be_combined_are_those_of_the_rest():
    before = {"loss": 1.0, "f1": numpy.array([1.0, 0.0]), "kind": "a", "gone": 1.0, "shape": numpy.ones(2)}
    after = {"loss": 4.0, "f1": numpy.array([0.0, 1.0]), "kind": "b", "new": 2.0, "shape": numpy.ones(3)}
    before |= {"none": None, "was_none": None, "text": "1.5"}
    after |= {"none": None, "was_none": 3.0, "text": "2.5"}
    whole = combined(before, 2, after, 1)
    assert whole["loss"] == 2.0 and isinstance(whole["loss"], float)
    assert whole["f1"] == pytest.approx([2 / 3, 1 / 3])
    assert (whole["kind"], whole["new"], whole["shape"].tolist()) == ("b", 2.0, [1, 1, 1])
    assert "gone" not in whole
    assert (whole["none"], whole["was_none"], whole["text"]) == (None, 3.0, "2.5")


def test_early_stopping_goes_on_after_each_change():
    state, stop, seen = State([(1, 2), (2, 2), (3, 1)]), EarlyStopping(patience=2), Seen()
    keep = KeepCallbackState(state, [stop])
    callbacks = [UpdateEpochState(state), UpdateBatchState(state), stop, keep, seen, CommitState(state)]
    train(state, callbacks, lambda epoch, batch: 1.0, epochs=10)
    # The first epoch has the best loss; two more do not improve it.
    assert len(seen.logs) == 3
    # The next fit of the script starts anew.
    assert state.fit_progress.callbacks == []


def test_a_stop_that_falls_on_a_change_stands():
    state = State([(2, 0)])
    stop = EarlyStopping(patience=1)
    train(state, [UpdateEpochState(state), UpdateBatchState(state), stop, CommitState(state)], lambda *_: 1.0, epochs=9)
    assert state.epoch == 2
    assert state.commits[-1] == (2, 0)
    # The end of a resumed epoch is no such stop.
    state = State([(0, 3), (1, 0)])
    train(state, [UpdateEpochState(state), UpdateBatchState(state), CommitState(state)], lambda *_: 1.0, epochs=2)
    assert not state.change_at and state.epoch == 2


def test_what_a_callback_keeps_is_what_changes():
    def callback(rank):
        made = EarlyStopping(patience=rank)
        made.on_train_begin()
        made.nan, made.lists, made.model, made.lock = math.nan, [1], object(), object()
        return made

    one, other = callback(1), callback(2)
    values, others = CallbackValues(one), CallbackValues(other)
    assert values.capture() == {}
    one.on_epoch_end(0, {"loss": 3.0})
    one.lists.append(2)
    kept = values.capture()
    assert sorted(kept) == ["best", "best_weights", "lists"]
    one.lists.append(3)
    others.restore(kept)
    assert (other.best, other.lists, other.patience) == (3.0, [1, 2], 2)
    assert other.best_weights[0].tolist() == [3, 3] and other.best_weights[0] is not one.best_weights[0]
    assert other.path != one.path
    # What has changed once stays part of it.
    one.on_train_begin()
    assert sorted(values.capture()) == ["best", "best_weights", "lists"]


@pytest.mark.parametrize("resets_best", [False, True])
@pytest.mark.parametrize("restores", [1, 2])
def test_the_callback_of_a_new_worker_compares_as_those_of_the_others(resets_best, restores):
    survivor, newcomer = MonitorCallback(resets_best), MonitorCallback(resets_best)
    values = CallbackValues(survivor)
    survivor.on_epoch_end(0, {"loss": 1.0})
    others = CallbackValues(newcomer)
    for _ in range(restores):
        others.restore(values.capture())
    # Each is less than min_delta away from the best loss.
    for epoch, loss in enumerate([1.00005, 0.99995], 1):
        for callback in (survivor, newcomer):
            callback.on_epoch_end(epoch, {"loss": loss})
        assert vars(newcomer) == vars(survivor)
    assert (newcomer.best, newcomer.wait) == (1.0, 2)
    assert values.capture() == others.capture()


def test_callbacks_are_kept_in_a_keras_state_only():
    with pytest.raises(TypeError, match="must be a KerasState, not an object of type SimpleNamespace"):
        KeepCallbackState(SimpleNamespace(), [])


@pytest.mark.parametrize(
    ("every", "execution", "places"),
    [
        (1, 1, [(0, 1), (0, 2), (0, 3), (1, 0)]),
        (2, 2, [(0, 2), (1, 0)]),
        (4, 2, [(1, 0)]),
        (3, 1, [(0, 3), (1, 0)]),
        (2, 4, [(1, 0)]),
    ],
)
def test_batches_per_commit_counts_batches_of_an_execution(every, execution, places):
    state = State()
    callbacks = [UpdateEpochState(state), UpdateBatchState(state), CommitState(state, every)]
    fit(callbacks, lambda *_: 1.0, epochs=1, execution=execution)
    assert state.commits == places


def test_metrics_of_any_shape_are_averaged(start):
    text = start.job(
        "-np 2",
        """
        import numpy
        import elasticrun as e
        from elasticrun._keras.metric_average import MetricAverage

        e.init()
        rank = e.rank()
        logs = {"f1": numpy.array([[1, 2], [3, 4]]) * rank, "loss": numpy.float32(rank), "name": f"x{rank}", "lr": 2}
        logs["none"] = None
        MetricAverage().on_epoch_end(0, logs)
        print("LOGS", logs["f1"].tolist(), logs["loss"], logs["name"] == f"x{rank}", logs["lr"], logs["none"])
        MetricAverage().on_epoch_end(0, {"name": "x"})
        MetricAverage().on_epoch_end(0, None)
        """,
    ).succeed()
    assert text.count("LOGS [[0.5, 1.0], [1.5, 2.0]] 0.5 True 2.0 None") == 2


def test_another_back_end_of_keras_is_named_where_tensorflow_is_missing(start):
    start.script("class backend:\n    backend = staticmethod(lambda: 'jax')\n", "keras.py")
    text = start.alone("""
        import sys
        sys.modules["tensorflow"] = None
        try:
            import elasticrun.keras
        except ImportError as error:
            print(error)
    """)
    assert "works with TensorFlow as the back end of Keras, but it is jax: set KERAS_BACKEND=tensorflow" in text
