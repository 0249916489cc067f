"""Trains by model.fit through changes of the world: keras_fit.py EPOCHS STEPS [FAIL_RANK FAIL_STEP].

Rank FAIL_RANK of the first round kills itself before its step FAIL_STEP. All ranks see the same data, so the
result is that of one process. With EPOCHS 0 it trains until there are two workers, and two epochs more.
"""

import os
import signal
import sys

import numpy
import tensorflow as tf

import elasticrun
import elasticrun.tensorflow.keras as hvd

keras = tf.keras
epochs, steps = int(sys.argv[1]), int(sys.argv[2])
fail_rank, fail_step = (int(word) for word in (sys.argv[3:5] or ("-1", "-1")))

hvd.init()
keras.utils.set_random_seed(17 + hvd.rank())
inputs = numpy.random.default_rng(0).normal(size=(8, 6)).astype("f")
data = tf.data.Dataset.from_tensors((inputs, numpy.sin(inputs[:, :3]))).repeat()
model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(20, activation="tanh"), keras.layers.Dense(3)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), loss="mse")
state = hvd.elastic.KerasState(model, batch=0, epoch=0, commits=0)


class Watch(keras.callbacks.Callback):
    """Kills the process or ends the training at a given batch, and prints commits."""

    def on_train_batch_begin(self, batch, logs=None):
        world = elasticrun.world()
        if world.round == 1 and world.rank == fail_rank and state.commits == fail_step:
            os.kill(os.getpid(), signal.SIGKILL)
        print(f"rank {world.rank} of {world.size} at {state.epoch}:{state.batch} after {state.commits}", flush=True)

    def on_epoch_end(self, epoch, logs=None):
        if not epochs and hvd.size() == 2 and hvd.allreduce(float(self.whole), op=hvd.Min) >= 2:
            self.model.stop_training = True
        self.whole += hvd.size() == 2

    def on_train_begin(self, logs=None):
        self.whole = 0


class Commit(hvd.elastic.CommitStateCallback):
    def on_batch_end(self, batch, logs=None):
        self.state.commits += 1
        super().on_batch_end(batch, logs)


callbacks = [
    hvd.elastic.UpdateEpochStateCallback(state),
    hvd.elastic.UpdateBatchStateCallback(state),
    hvd.callbacks.MetricAverageCallback(),
    Watch(),
    Commit(state),
]


@hvd.elastic.run
def train(state):
    model.fit(
        data, epochs=epochs or 10000, initial_epoch=state.epoch, steps_per_epoch=steps, callbacks=callbacks, verbose=0
    )


train(state)
total = sum(float(tf.reduce_sum(tf.abs(tf.convert_to_tensor(v)))) for v in model.trainable_variables)
done = int(model.optimizer.iterations)
print(f"done rank {hvd.rank()} of {hvd.size()}: epoch {state.epoch} steps {done} sum {total:.6f}", flush=True)
assert (state.commits, state.batch) == (done, 0)
# Each batch of each epoch was done once.
assert done == state.epoch * steps
