"""elasticrun.tensorflow.keras, against what one process computes; with Keras 3 or tf_keras, whichever tf.keras is."""

import os
import tempfile
import types
from pathlib import Path

import numpy
import pytest
import tensorflow as tf

import elasticrun.tensorflow as htf
import elasticrun.tensorflow.keras as hvd
from elasticrun._keras.fit_progress import FitProgress

keras = tf.keras
LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
ROWS, BATCH = 48, 12
INPUTS = numpy.random.default_rng(0).normal(size=(ROWS, 6)).astype("f")
TARGETS = numpy.tanh(INPUTS[:, :2])


def network(*more):
    """The same network on all ranks."""
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [keras.layers.Input((6,)), keras.layers.Dense(8, activation="tanh"), *more, keras.layers.Dense(2)]
    )


def optimizers():
    """Optimizers of each kind that there is."""
    kinds = [
        lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        lambda: keras.optimizers.Adam(0.01),
        lambda: keras.optimizers.RMSprop(0.01, momentum=0.5),
    ]
    if LEGACY:
        kinds.append(lambda: keras.optimizers.legacy.SGD(0.1, momentum=0.9))
        kinds.append(lambda: keras.optimizers.legacy.Adam(0.01))
    return kinds


def fit(model, optimizer, rank=0, size=1, epochs=2, **options):
    """Trains on this rank's part of each batch."""
    # Objects, not names: Keras 3 does not find "mse" in a model of HDF5 again.
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.MeanSquaredError(),
        metrics=[keras.metrics.MeanAbsoluteError(name="mae")],
    )
    parts = INPUTS.reshape(-1, size, BATCH // size, 6), TARGETS.reshape(-1, size, BATCH // size, 2)
    mine = [part[:, rank].reshape(-1, part.shape[-1]) for part in parts]
    return model.fit(*mine, batch_size=BATCH // size, epochs=epochs, shuffle=False, verbose=0, **options).history


def weights(model):
    return numpy.concatenate([numpy.ravel(weight) for weight in model.get_weights()])


def same_everywhere(model):
    every = hvd.allgather(weights(model)[None]).numpy()
    assert (every == every[0]).all()


def check_each_optimizer_does_what_one_process_does(rank, size):
    for make in optimizers():
        model, alone = network(), network()
        fit(model, hvd.DistributedOptimizer(make()), rank, size)
        fit(alone, make())
        numpy.testing.assert_allclose(weights(model), weights(alone), rtol=1e-3, atol=1e-5)
        same_everywhere(model)


def check_loop_of_ones_own(rank, size):
    for make in optimizers():
        model, alone = network(), network()
        for net, optimizer, x, y in [
            (model, hvd.DistributedOptimizer(make()), INPUTS[rank::size], TARGETS[rank::size]),
            (alone, make(), INPUTS, TARGETS),
        ]:

            @tf.function
            def step(net=net, optimizer=optimizer, x=x, y=y):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((net(x) - y) ** 2)
                gradients = tape.gradient(loss, net.trainable_variables)
                optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))

            if hasattr(optimizer, "build"):
                optimizer.build(net.trainable_variables)
            for _ in range(3):
                step()
        numpy.testing.assert_allclose(weights(model), weights(alone), rtol=1e-3, atol=1e-5)


def check_options(rank, size):
    for options in [
        {"compression": hvd.Compression.fp16},
        {"gradient_predivide_factor": 2.0},
        {"groups": 2},
    ]:
        model, alone = network(), network()
        fit(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **options), rank, size)
        fit(alone, keras.optimizers.SGD(0.1))
        numpy.testing.assert_allclose(weights(model), weights(alone), rtol=1e-2, atol=1e-3)
    model, alone = network(), network()
    fit(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 / size), op=hvd.Sum), rank, size)
    fit(alone, keras.optimizers.SGD(0.1))
    numpy.testing.assert_allclose(weights(model), weights(alone), rtol=1e-3, atol=1e-5)


def check_passes_are_added_up(rank, size):
    for make in optimizers():
        for average in (True, False):
            model, alone = network(), network()
            optimizer = hvd.DistributedOptimizer(
                make(), backward_passes_per_step=2, average_aggregated_gradients=average
            )
            fit(model, optimizer, rank, size, epochs=1)
            # One process, two batches at once.
            alone.compile(optimizer=make(), loss=keras.losses.MeanSquaredError())
            for at in range(0, ROWS, 2 * BATCH):
                part = slice(at, at + 2 * BATCH)
                if average:
                    alone.train_on_batch(INPUTS[part], TARGETS[part])
                else:
                    two = numpy.full(2 * BATCH, 2.0, "f")
                    alone.train_on_batch(INPUTS[part], TARGETS[part], sample_weight=two)
            numpy.testing.assert_allclose(weights(model), weights(alone), rtol=1e-3, atol=1e-5)
            assert int(optimizer.iterations) == ROWS // BATCH // 2


def check_added_passes_are_forgotten_in_a_new_round(rank, size):
    from elasticrun._keras.optimizer import begin_round

    variable = tf.Variable(1.0)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    optimizer.apply_gradients([(tf.constant(100.0), variable)])
    begin_round(optimizer)
    optimizer.apply_gradients([(tf.constant(0.25), variable)])
    assert float(variable) == 1.0
    optimizer.apply_gradients([(tf.constant(0.25), variable)])
    assert float(variable) == 0.5


def check_an_embedding(rank, size):
    for options in [{}, {"sparse_as_dense": True}]:
        keras.utils.set_random_seed(3)
        model = keras.Sequential(
            [
                keras.layers.Input((2,), dtype="int32"),
                keras.layers.Embedding(5, 3),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        before = model.get_weights()[0]
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), **options), loss="mse")
        model.fit(numpy.array([[rank, 3]]), numpy.array([[7.0]]), epochs=1, verbose=0)
        after = model.get_weights()[0]
        changed = [bool((before[row] != after[row]).any()) for row in range(5)]
        assert changed == [row < size or row == 3 for row in range(5)]
        same_everywhere(model)


def check_mixed_precision_skips_the_same_steps(rank, size):
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = network(keras.layers.Dense(4))
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
        model.compile(optimizer=optimizer, loss="mse")
        assert model.optimizer is optimizer
        # Too large for rank 0 only: the combined gradients are not finite, so no rank applies them.
        large = numpy.full((4, 6), 1e5 if rank == 0 else 1.0, "f")
        before = weights(model)
        model.fit(large, numpy.full((4, 2), 1e30 if rank == 0 else 0.0, "f"), epochs=1, verbose=0)
        assert (weights(model) == before).all()
        fit(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), rank, size)
        assert (weights(model) != before).any()
        same_everywhere(model)
    finally:
        keras.mixed_precision.set_global_policy("float32")


def check_wrong_optimizers(rank, size):
    for wrong in ["sgd", keras.optimizers.SGD, None]:
        with pytest.raises(TypeError, match="is no optimizer"):
            hvd.DistributedOptimizer(wrong)
    good = keras.optimizers.SGD(0.1)
    with pytest.raises(ValueError, match="distributed already"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(good))
    with pytest.raises(ValueError, match="op is Max"):
        hvd.DistributedOptimizer(good, op=hvd.Max)
    with pytest.raises(ValueError, match="backward_passes_per_step is 0"):
        hvd.DistributedOptimizer(good, backward_passes_per_step=0)
    with pytest.raises(NotImplementedError, match="process sets"):
        htf.DistributedOptimizer(good, process_set="some")


def check_a_saved_model_is_the_users_own(rank, size):
    with tempfile.TemporaryDirectory() as folder:
        model = network()
        fit(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), rank, size)
        # Keras 3 cannot continue with an optimizer from an HDF5 file, distributed or not.
        for ending in ["keras", "h5"] if LEGACY else ["keras"]:
            path = Path(folder, f"model.{ending}")
            model.save(path)
            plain = keras.models.load_model(path)
            assert type(plain.optimizer) is keras.optimizers.SGD
            loaded = hvd.load_model(path)
            assert isinstance(loaded.optimizer, keras.optimizers.SGD)
            assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations)
            # It continues like the saved one: with its momenta, and with combined gradients.
            part = INPUTS[rank::size], TARGETS[rank::size]
            for other in (plain, loaded):
                other.fit(*part, batch_size=4, epochs=1, shuffle=False, verbose=0)
            same_everywhere(loaded)
            assert (weights(plain) != weights(loaded)).any()


def check_broadcast_callback(rank, size):
    model = network()
    optimizer = keras.optimizers.SGD(0.0, momentum=0.9)
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), loss="mse")
    for variable in model.trainable_variables:
        variable.assign(tf.fill(variable.shape, float(rank)))
    model.fit(INPUTS, TARGETS, epochs=1, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(1)])
    assert (weights(model) == 1.0).all()
    # A model that the first batch builds.
    keras.utils.set_random_seed(rank)
    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse")
    model.fit(INPUTS, TARGETS, epochs=1, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(1)])
    same_everywhere(model)


def check_metric_average(rank, size):
    seen = []

    class Seen(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(dict(logs))

    average = hvd.callbacks.MetricAverageCallback()
    logs = {"loss": float(rank), "mae": 2.0 * rank}
    average.on_epoch_end(0, logs)
    mean = sum(range(size)) / size
    assert logs == {"loss": mean, "mae": 2 * mean}
    model, optimizer = network(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    fit(model, optimizer, rank, size, callbacks=[average, Seen()])
    # A metric that is an array.
    labels = numpy.eye(2, dtype="f")[numpy.arange(ROWS) % 2]
    model.compile(optimizer, loss="mse", metrics=[keras.metrics.F1Score(average=None)])
    model.fit(INPUTS, labels, batch_size=BATCH, verbose=0, callbacks=[average, Seen()])
    assert numpy.shape(seen[-1]["f1_score"]) == (2,)
    assert len({str(metrics) for metrics in hvd.allgather_object(seen)}) == 1


def check_metrics_of_an_epoch_that_another_round_began(rank, size):
    class Change(Exception):
        pass

    class Cut(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                raise Change

    def train(model, callbacks, done=0):
        data = tf.data.Dataset.from_tensor_slices((INPUTS, TARGETS)).batch(BATCH).repeat().skip(done)
        return model.fit(data, epochs=2, steps_per_epoch=ROWS // BATCH, verbose=0, callbacks=callbacks).history

    def compiled():
        model = network()
        model.compile(keras.optimizers.SGD(0.1), loss="mse", metrics=["mae"])
        return model

    state = types.SimpleNamespace(batch=0, fit_progress=FitProgress())
    update, average = hvd.elastic.UpdateBatchStateCallback(state), hvd.callbacks.MetricAverageCallback()
    whole, model = train(compiled(), []), compiled()
    with pytest.raises(Change):
        train(model, [update, average, Cut()])
    assert (state.batch, state.fit_progress.batches) == (3, 3)
    history = train(model, [update, average], done=3)
    for name in ("loss", "mae"):
        numpy.testing.assert_allclose(history[name], whole[name], rtol=1e-4)


def check_callbacks_go_on(rank, size):
    """EarlyStopping, ReduceLROnPlateau and ModelCheckpoint of this Keras, through a restore of the state."""
    model = network()
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    with tempfile.TemporaryDirectory() as folder:

        def callbacks():
            found = [
                keras.callbacks.EarlyStopping("fixed", mode="min", patience=3, restore_best_weights=True),
                keras.callbacks.ReduceLROnPlateau("fixed", mode="min", patience=2, factor=0.5),
                keras.callbacks.ModelCheckpoint(
                    os.path.join(folder, f"{rank}.keras"), monitor="fixed", mode="min", save_best_only=True
                ),
            ]
            return found, hvd.elastic.KeepCallbackStateCallback(state, found)

        class Fixed(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                logs["fixed"] = 1.0 if epoch else 0.5

        class Cut(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                state.epoch = epoch + 1
                state.save()
                raise KeyError(epoch)

        done = []
        for _ in range(10):
            # As a worker that has just started.
            found, keep = callbacks()
            state.restore()
            try:
                model.fit(INPUTS, TARGETS, initial_epoch=state.epoch, epochs=10, verbose=0,
                          callbacks=[Fixed(), *found, keep, Cut()])  # fmt: skip
            except KeyError as error:
                done.append(error.args[0])
            if model.stop_training:
                break
        assert done == [0, 1, 2, 3]
        assert float(model.optimizer.learning_rate) == pytest.approx(0.05)
        assert found[2].best == 0.5


def check_warm_up(rank, size):
    rates = []

    class Rates(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            rates.append(float(self.model.optimizer.learning_rate))

    fit(
        network(),
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.3)),
        rank,
        size,
        epochs=3,
        callbacks=[hvd.callbacks.LearningRateWarmupCallback(0.3, warmup_epochs=2), Rates()],
    )
    steps = ROWS // BATCH
    ramp = [0.3 / size * ((size - 1) * (step + 1) / (2 * steps) + 1) for step in range(2 * steps)]
    numpy.testing.assert_allclose(rates, ramp + [0.3] * steps, rtol=1e-5)


def check_warm_up_in_an_epoch_that_another_round_began(rank, size):
    rates = []

    class Rates(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            rates.append(float(self.model.optimizer.learning_rate))

    # Three of the four batches of the last epoch of the warm-up are done.
    state = types.SimpleNamespace(epoch=1, batch=3)
    steps = ROWS // BATCH
    for order in (slice(None), slice(None, None, -1)):
        rates.clear()
        state.epoch, state.batch = 1, 3
        callbacks = [
            hvd.callbacks.LearningRateWarmupCallback(0.3, warmup_epochs=2),
            hvd.elastic.UpdateBatchStateCallback(state),
        ]
        history = fit(
            network(),
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)),
            rank,
            size,
            epochs=3,
            initial_epoch=1,
            callbacks=[*callbacks[order], Rates()],
        )
        numpy.testing.assert_allclose(rates, [0.3] * (1 + steps), rtol=1e-5)
        numpy.testing.assert_allclose(history["lr"], [0.3, 0.3], rtol=1e-5)
    # Without that callback the rate is right at the end of the epoch.
    callback = hvd.callbacks.LearningRateWarmupCallback(0.3, warmup_epochs=1, steps_per_epoch=1000)
    history = fit(network(), keras.optimizers.SGD(0.1), epochs=2, callbacks=[callback])
    numpy.testing.assert_allclose(history["lr"], [0.3, 0.3], rtol=1e-5)


def check_schedules(rank, size):
    callback = hvd.callbacks.LearningRateScheduleCallback
    for multiplier, start, end, expected in [
        (0.5, 1, None, [0.4, 0.4, 0.2, 0.1]),
        (lambda epoch: 1 + epoch, 0, 2, [0.4, 0.8, 0.8, 0.8]),
    ]:
        history = fit(
            network(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.4)), rank, size, epochs=4,
            callbacks=[callback(0.4, multiplier, start_epoch=start, end_epoch=end)],
        )  # fmt: skip
        numpy.testing.assert_allclose(history["lr"], expected, rtol=1e-5)
    with pytest.raises(ValueError, match="initial_lr is needed"):
        callback(None, 0.5)
    decay = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    with pytest.raises(ValueError, match="follows a schedule .ExponentialDecay"):
        fit(network(), keras.optimizers.SGD(decay), callbacks=[callback(0.4, 0.5)])


def check_momenta_follow_the_learning_rate(rank, size):
    """As if velocities held gradients, and were multiplied by the learning rate of each step."""
    kinds = [lambda: keras.optimizers.SGD(0.1, momentum=0.9)]
    if LEGACY:
        kinds.append(lambda: keras.optimizers.legacy.SGD(0.1, momentum=0.9))
    for make in kinds:
        model, expected = network(), network()
        schedule = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.5**epoch)
        fit(model, make(), epochs=3, callbacks=[schedule])
        velocity = [numpy.zeros(weight.shape, "f") for weight in expected.get_weights()]
        for epoch in range(3):
            for at in range(0, ROWS, BATCH):
                with tf.GradientTape() as tape:
                    error = expected(INPUTS[at : at + BATCH]) - TARGETS[at : at + BATCH]
                    loss = tf.reduce_mean(error**2)
                gradients = tape.gradient(loss, expected.trainable_variables)
                for v, g, variable in zip(velocity, gradients, expected.trainable_variables, strict=True):
                    v[...] = 0.9 * v - g.numpy()
                    variable.assign(variable + 0.1 * 0.5**epoch * v)
        numpy.testing.assert_allclose(weights(model), weights(expected), rtol=1e-3, atol=1e-5)


def check_batch_normalisation_over_all_ranks(rank, size):
    def make(layer):
        keras.utils.set_random_seed(3)
        return keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(4), layer, keras.layers.Dense(2)])

    # Of the first rank more than of the others: rows count, not ranks.
    shares = numpy.split(numpy.arange(BATCH), [BATCH - 2 * (size - 1) + 2 * r for r in range(size - 1)])
    x, y = INPUTS[:BATCH], TARGETS[:BATCH]
    model = make(htf.SyncBatchNormalization())
    alone = make(keras.layers.BatchNormalization(**({"fused": False} if LEGACY else {})))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((model(x[shares[rank]], training=True) - y[shares[rank]]) ** 2)
    tape = hvd_tape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((alone(x, training=True) - y) ** 2)
    for mine, all_of_it in zip(gradients, tape.gradient(loss, alone.trainable_variables), strict=True):
        numpy.testing.assert_allclose(mine, all_of_it, rtol=1e-3, atol=1e-4)
    numpy.testing.assert_allclose(weights(model), weights(alone), rtol=1e-4, atol=1e-5)
    # What a mask leaves out does not count.
    random = numpy.random.default_rng(5)
    steps, mask = random.normal(size=(BATCH, 5, 4)).astype("f"), random.random((BATCH, 5)) < 0.7
    masked = htf.SyncBatchNormalization()(steps[shares[rank]], training=True, mask=mask[shares[rank]])
    whole = keras.layers.BatchNormalization(**({"fused": False} if LEGACY else {}))(steps, training=True, mask=mask)
    numpy.testing.assert_allclose(masked, whole.numpy()[shares[rank]], rtol=1e-3, atol=1e-4)
    images = htf.SyncBatchNormalization()
    for training in (True, False):
        assert images(tf.random.normal([2, 4, 4, 3]), training=training).shape == (2, 4, 4, 3)
    if LEGACY:
        with pytest.raises(ValueError, match="fused=True"):
            htf.SyncBatchNormalization(fused=True)


def hvd_tape(tape):
    return htf.DistributedGradientTape(tape, op=hvd.Sum)


def check_values_that_are_no_tensors(rank, size):
    assert hvd.allreduce([1.0 * rank], op=hvd.Sum).numpy().tolist() == [sum(range(size))]
    assert hvd.allgather([rank]).numpy().tolist() == list(range(size))
    assert hvd.broadcast(rank, 1).numpy() == 1
    assert hvd.reducescatter(numpy.ones([size, 1], "f")).shape == (1, 1)


def check_states_that_cannot_be(rank, size):
    unbuilt = keras.Sequential([keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="the model is not built"):
        hvd.elastic.KerasState(unbuilt, epoch=0)
    xla = network()
    xla.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", jit_compile=True)
    with pytest.raises(ValueError, match="pass jit_compile=False"):
        hvd.elastic.KerasState(xla, epoch=0)
    with pytest.raises(ValueError, match="TensorFlowState needs variables"):
        htf.elastic.TensorFlowState(step=0)
    with pytest.raises(ValueError, match="batches_per_commit is 0"):
        hvd.elastic.CommitStateCallback(None, batches_per_commit=0)


def check_places_of_commits(rank, size):
    """Continues in the middle of an epoch. No commit contains all batches of an unfinished epoch."""
    for every, epoch, batch, expected in [
        (1, 0, 0, [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]),
        (1, 0, 3, [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]),
        (2, 1, 1, [(1, 3), (2, 0)]),
        (3, 2, 0, []),
    ]:
        state = types.SimpleNamespace(epoch=epoch, batch=batch)
        places = []

        class Commit(hvd.elastic.CommitStateCallback):
            def commit(self, places=places):
                places.append((self.state.epoch, self.state.batch))

        model = network()
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
        callbacks = [
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.UpdateBatchStateCallback(state),
            Commit(state, every),
        ]
        fit(model, optimizer, rank, size, epochs=2, initial_epoch=epoch, callbacks=callbacks)
        assert places == expected
        assert int(optimizer.iterations) == 2 * 4 - epoch * 4 - batch
        assert (state.epoch, state.batch) == (2, 0)
    # Two batches are one execution.
    state, places = types.SimpleNamespace(epoch=0, batch=0), []

    class CommitOfExecutions(hvd.elastic.CommitStateCallback):
        def commit(self):
            places.append((self.state.epoch, self.state.batch))

    model = network()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", steps_per_execution=2)
    callbacks = [
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        CommitOfExecutions(state, 2),
    ]
    model.fit(INPUTS, TARGETS, batch_size=BATCH, verbose=0, callbacks=callbacks)
    assert places == [(0, 2), (1, 0)]


def check_epochs_of_the_old_style(rank, size):
    """fit(epochs=N - state.epoch) counts from 0 each time."""
    state = types.SimpleNamespace(epoch=3, batch=0)
    update = hvd.elastic.UpdateEpochStateCallback(state)
    fit(network(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), rank, size, epochs=2, callbacks=[update])
    assert state.epoch == 5


def check_a_stop_of_others_stands(rank, size):
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = True

    state = types.SimpleNamespace(batch=3)
    update = hvd.elastic.UpdateBatchStateCallback(state)
    for callbacks in ([update, Stop()], [Stop(), update]):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
        state.batch = 3
        fit(network(), optimizer, rank, size, epochs=5, callbacks=callbacks)
        assert int(optimizer.iterations) == 1


def check_a_state_is_rolled_back(rank, size):
    for make in optimizers():
        model = network()
        optimizer = hvd.DistributedOptimizer(make())
        state = hvd.elastic.KerasState(model, optimizer, epoch=0, best={"loss": 1.0})
        before = weights(model)
        fit(model, optimizer, rank, size)
        rate = float(optimizer.learning_rate)
        optimizer.learning_rate = 7.0
        state.epoch, state.best["loss"] = 5, 0.0
        state.restore()
        assert (weights(model) == before).all()
        assert (int(optimizer.iterations), state.epoch, state.best) == (0, 0, {"loss": 1.0})
        assert float(optimizer.learning_rate) == pytest.approx(rate)
        fit(model, optimizer, rank, size)
        state.save()
        after = weights(model)
        fit(model, optimizer, rank, size)
        state.restore()
        assert (weights(model) == after).all()
        # All take what rank 0 has.
        model.trainable_variables[0].assign(tf.fill(model.trainable_variables[0].shape, float(rank)))
        state.sync()
        assert (model.get_weights()[0] == 0.0).all()


def check_a_state_of_variables(rank, size):
    variables = [tf.Variable([1.0, 2.0]), tf.Variable(3, dtype=tf.int64), tf.Variable([0.5], dtype=tf.bfloat16)]
    state = htf.elastic.TensorFlowState(variables=variables, step=0, kept=tf.Variable(1.0))
    kept = state.kept
    for variable in (*variables, kept):
        variable.assign(variable * 2)
    state.restore()
    assert [variable.numpy().tolist() for variable in variables] == [[1.0, 2.0], 3, [0.5]]
    assert state.kept is kept and float(kept) == 1.0


def check_an_optimizer_of_tensorflow_1(rank, size):
    variable = tf.Variable(1.0)
    optimizer = htf.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.5))
    for apply in (optimizer.apply_gradients, tf.function(optimizer.apply_gradients)):
        variable.assign(1.0)
        apply([(tf.constant(float(rank)), variable)])
        assert float(variable) == 1.0 - 0.5 * sum(range(size)) / size
