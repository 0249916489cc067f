"""elasticrun.tensorflow.keras and elasticrun.keras in real jobs, with Keras 3 and with tf_keras."""

import re
import sys
from pathlib import Path

import pytest
from support.checks import checked, checks_of

pytest.importorskip("tensorflow", reason="TensorFlow is not installed: run `make test-frameworks`")

CHECKS = Path(__file__).parent / "checks" / "keras_training.py"
FIT = Path(__file__).parent / "workers" / "keras_fit.py"
EXAMPLE = Path(__file__).parents[4] / "examples" / "python" / "keras_digits.py"
DONE = re.compile(r"done rank (\d+) of (\d+): epoch (\d+) steps (\d+) sum ([\d.]+)")
KERAS = {"keras 3": "0", "tf_keras": "1"}


@pytest.fixture(params=KERAS)
def env(request):
    module = {"keras 3": "keras", "tf_keras": "tf_keras"}[request.param]
    pytest.importorskip(module, reason=f"{module} is not installed: run `make test-frameworks`")
    return {"TF_USE_LEGACY_KERAS": KERAS[request.param]}


@pytest.mark.parametrize("name", checks_of(CHECKS))
def test_training(name, env):
    checked(CHECKS, 2, **env).passed(name)


def test_fit_goes_on_after_a_worker_was_killed(env, start):
    """In the middle of an epoch; each batch of each epoch is done once."""
    one = DONE.findall(start.train("-np 1", FIT, "3", "10", **env).succeed())
    output = start.train("-np 3 --min-np 2 --blacklist forever", FIT, "3", "10", "2", "14", **env).succeed()
    two = DONE.findall(output)
    assert [(size, epoch, steps) for _, size, epoch, steps, _ in two] == [("2", "3", "30")] * 2, output
    assert "of 2 at 1:4 after 14" in output
    assert float(two[0][4]) == float(two[1][4]) == pytest.approx(float(one[0][4]), abs=1e-3)


def test_callbacks_go_on_with_a_newcomer(env, start):
    """The newcomer broadcasts with the survivor, and the warm-up arrives although its last epoch was cut in two."""
    output = start.job(
        "-np 2 --min-np 2 -H localhost:2 --blacklist-cooldown-range 0 1",
        """
        import os, signal
        import numpy
        import tensorflow as tf
        import elasticrun
        import elasticrun.tensorflow.keras as hvd

        keras = tf.keras
        hvd.init()
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.3)), loss="mse")
        state = hvd.elastic.KerasState(model, batch=0, epoch=0)

        class Watch(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                world = elasticrun.world()
                if (world.round, world.rank, state.epoch, state.batch) == (1, 1, 1, 8):
                    os.kill(os.getpid(), signal.SIGKILL)

            def on_train_batch_end(self, batch, logs=None):
                print("rate", state.epoch, state.batch, f"{float(self.model.optimizer.learning_rate):.4f}")

        callbacks = [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.LearningRateWarmupCallback(0.3, warmup_epochs=2),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.UpdateBatchStateCallback(state),
            Watch(),
            hvd.elastic.CommitStateCallback(state),
        ]
        data = tf.data.Dataset.from_tensors((numpy.ones([4, 3], "f"), numpy.ones([4, 1], "f"))).repeat()

        @hvd.elastic.run
        def train(state):
            print("begins at", state.epoch, state.batch, "in round", elasticrun.world().round)
            model.fit(data, epochs=3, initial_epoch=state.epoch, steps_per_epoch=10, callbacks=callbacks, verbose=0)

        train(state)
        """,
        **env,
    ).succeed()
    assert output.count("begins at 1 8 in round 2") == 2, output
    rates = re.findall(r"\[0\]<stdout>:rate (\d) (\d+) ([\d.]+)", output)
    # state.batch and the rate of the batch, as the plan has them for two workers.
    planned = [min(0.3, 0.15 * (1 + (10 * int(epoch) + int(batch)) / 20)) for epoch, batch, _ in rates if int(batch)]
    told = [float(rate) for _, batch, rate in rates if int(batch)]
    assert len(told) > 25 and told == pytest.approx(planned, abs=2e-4), output


def test_early_stopping_through_changes_of_hosts(env, start):
    """A worker is killed in each epoch, more often than the patience."""
    output = start.job(
        "-np 2 --min-np 2 -H localhost:2 --failure-domain slot --blacklist-cooldown-range 0 1",
        """
        import os, signal
        import numpy
        import tensorflow as tf
        import elasticrun
        import elasticrun.tensorflow.keras as hvd

        keras = tf.keras
        hvd.init()
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse")
        state = hvd.elastic.KerasState(model, batch=0, epoch=0)

        class Watch(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                world = elasticrun.world()
                if (world.round, world.rank, state.batch) == (state.epoch + 1, 1, 2):
                    os.kill(os.getpid(), signal.SIGKILL)

            def on_epoch_end(self, epoch, logs=None):
                print("epoch", epoch, "of round", elasticrun.world().round)

        stop = keras.callbacks.EarlyStopping("loss", patience=2)
        callbacks = [
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.callbacks.MetricAverageCallback(),
            stop,
            hvd.elastic.KeepCallbackStateCallback(state, [stop]),
            Watch(),
            hvd.elastic.CommitStateCallback(state),
        ]
        data = tf.data.Dataset.from_tensors((numpy.ones([4, 3], "f"), numpy.ones([4, 1], "f"))).repeat()

        @hvd.elastic.run
        def train(state):
            model.fit(data, epochs=10, initial_epoch=state.epoch, steps_per_epoch=4, callbacks=callbacks, verbose=0)

        train(state)
        """,
        **env,
    ).succeed()
    epochs = re.findall(r"\[0\]<stdout>:epoch (\d+) of round (\d+)", output)
    assert epochs == [("0", "2"), ("1", "3"), ("2", "4")], output


def test_fit_uses_a_host_that_comes(env, start):
    change = start.hosts("localhost:1\n")
    job = start.train(
        f"--min-np 1 --host-discovery-script {start.discovery} --discovery-interval 100ms", FIT, "0", "10", **env
    )
    job.until("rank 0 of 1 at 1:3")
    change("localhost:1\n127.0.0.1:1\n")
    output = job.succeed()
    done = DONE.findall(output)
    assert [size for _, size, *_ in done] == ["2", "2"], output
    assert done[0][2:] == done[1][2:]
    # Rank 0 did each batch once.
    places = re.findall(r"rank 0 of \d at (\d+):(\d+) after", output)
    assert len(places) == len(set(places)) == int(done[0][3])


def test_elasticrun_keras_is_the_same_on_keras_itself(start):
    pytest.importorskip("keras", reason="Keras is not installed: run `make test-frameworks`")
    output = start.job(
        "-np 2",
        """
        import keras
        import numpy
        import elasticrun.keras as hvd
        import elasticrun.tensorflow.keras as other

        assert sorted(hvd.__all__) == sorted(other.__all__)
        assert all(hasattr(hvd, name) for name in hvd.__all__)
        assert issubclass(hvd.callbacks.MetricAverageCallback, keras.callbacks.Callback)
        assert issubclass(hvd.elastic.CommitStateCallback, keras.callbacks.Callback)
        hvd.init()
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
        state = hvd.elastic.KerasState(model, batch=0, epoch=0)

        @hvd.elastic.run
        def train(state):
            model.fit(numpy.ones([4, 3]), numpy.full(4, hvd.rank()), epochs=2, verbose=0)

        train(state)
        print("weights", sorted({hvd.allgather(w.reshape(1, -1)).numpy().std(0).max() for w in model.get_weights()}))
        """,
    ).succeed()
    assert output.count("weights [") == 2 and "weights [np.float32(0.0)]" in output, output


def test_another_back_end_of_keras_is_refused(start):
    pytest.importorskip("keras", reason="Keras is not installed: run `make test-frameworks`")
    job = start.command(sys.executable, "-c", "import elasticrun.keras", KERAS_BACKEND="jax")
    told = job.fail()
    assert "ImportError: elasticrun.keras works with TensorFlow as the back end of Keras, but it is jax" in told


def test_another_back_end_of_keras_is_refused_where_tensorflow_is_missing(start):
    pytest.importorskip("keras", reason="Keras is not installed: run `make test-frameworks`")
    program = """
import sys

class NoTensorFlow:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tensorflow":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTensorFlow())
import elasticrun.keras
"""
    told = start.command(sys.executable, "-c", program, KERAS_BACKEND="jax").fail()
    assert "ImportError: elasticrun.keras works with TensorFlow as the back end of Keras, but it is jax" in told


def test_the_example_learns_digits_though_a_worker_is_killed(start):
    pytest.importorskip("keras", reason="Keras is not installed: run `make test-frameworks`")
    output = start.job(
        "-np 3 --min-np 2 --blacklist forever",
        f"""
        import os, runpy, signal
        import elasticrun
        import elasticrun.keras as hvd

        commit = hvd.elastic.KerasState.commit

        def commit_or_die(state):
            commit(state)
            world = elasticrun.world()
            if (world.round, world.rank, state.epoch, state.batch) == (1, 1, 2, 7):
                os.kill(os.getpid(), signal.SIGKILL)

        hvd.elastic.KerasState.commit = commit_or_die
        runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
        """,
    ).succeed()
    share = re.search(r"reads ([\d.]+)% of the test digits", output)
    assert share and float(share[1]) >= 95, output
    told = re.findall(r"epoch (\d+): loss [\d.]+, (\d) workers", output)
    assert told == [(str(epoch), "3" if epoch <= 2 else "2") for epoch in range(1, 9)], output
