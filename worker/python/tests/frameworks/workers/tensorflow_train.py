"""Trains in a custom loop through changes of the workers: tensorflow_train.py STEPS [FAIL_RANK FAIL_STEP].

Rank FAIL_RANK of the first round kills itself in the middle of step FAIL_STEP. Each step sees one batch of the
whole data, whatever the number of workers, so the result is that of one process. With STEPS 0 it trains until
there are two workers, and 20 steps more.
"""

import os
import signal
import sys

import numpy
import tensorflow as tf

import elasticrun
import elasticrun.tensorflow as hvd

steps = int(sys.argv[1])
fail_rank, fail_step = (int(word) for word in (sys.argv[2:4] or ("-1", "-1")))
BATCH = 12

hvd.init()
# Different on all ranks: the first sync makes them equal.
tf.keras.utils.set_random_seed(17 + hvd.rank())
model = tf.keras.Sequential(
    [tf.keras.layers.Input((6,)), tf.keras.layers.Dense(50, activation="tanh"), tf.keras.layers.Dense(3)]
)
optimizer = tf.keras.optimizers.Adam(0.01)


@tf.function(reduce_retracing=True)
def train_on(inputs, wanted, share):
    with tf.GradientTape() as tape:
        # A sum over the share times the ranks: the average over ranks is that of the batch.
        loss = tf.reduce_sum((model(inputs) - wanted) ** 2) * share
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


def batch(step):
    inputs = numpy.random.default_rng(step).normal(size=(BATCH, 6)).astype("f")
    return inputs, numpy.sin(inputs[:, :3])


resets = []
state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0, history=[], with_two=0)
state.register_reset_callbacks([lambda: resets.append(hvd.size())])


@hvd.elastic.run
def train(state):
    world = elasticrun.world()
    print(f"round {world.round}: rank {world.rank} of {world.size} from step {state.step}", flush=True)
    while state.step < steps if steps else state.with_two < 20:
        if world.round == 1 and world.rank == fail_rank and state.step == fail_step:
            os.kill(os.getpid(), signal.SIGKILL)
        inputs, wanted = batch(state.step)
        part = slice(world.rank * BATCH // world.size, (world.rank + 1) * BATCH // world.size)
        train_on(inputs[part], wanted[part], tf.constant(world.size / BATCH))
        state.step += 1
        state.with_two += world.size == 2
        state.history.append((world.size, state.step))
        state.commit()
        if world.rank == 0:
            print(f"committed {state.step} with {world.size}", flush=True)
    return "the result"


assert train(state) == "the result"
total = sum(float(tf.reduce_sum(tf.abs(variable))) for variable in model.trainable_variables)
print(f"done rank {hvd.rank()} of {hvd.size()}: step {state.step} resets {resets} sum {total:.6f}", flush=True)
assert [step for _, step in state.history] == list(range(1, state.step + 1))
assert int(optimizer.iterations) == state.step
