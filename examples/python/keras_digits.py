"""Learns to read handwritten digits by model.fit of Keras: a small network, whatever becomes of the workers.

python keras_digits.py
elasticrun -np 4 --min-np 2 python keras_digits.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

import elasticrun.keras as hvd
from elasticrun.examples.data import CLASSES, PIXELS, Digit, load

EPOCHS = 8
#: Images of a step, which the workers share; so a step is the same for any number of them.
BATCH = 96
LEARNING_RATE = 0.1
HIDDEN = 64
SEED = 1998

Array = np.ndarray[Any, Any]


def arrays(digits: Sequence[Digit]) -> tuple[Array, Array]:
    """Images in rows, and their labels."""
    return (
        np.array([digit.pixels for digit in digits], np.float32),
        np.array([digit.label for digit in digits], np.int32),
    )


def shares(pixels: Array, labels: Array, epoch: int, batch: int) -> Iterator[tuple[Array, Array]]:
    """This worker's part of each batch, from a batch of an epoch on."""
    steps = len(pixels) // BATCH
    while True:
        order = np.random.default_rng([SEED, epoch]).permutation(len(pixels))
        for step in range(batch, steps):
            rows = order[step * BATCH : (step + 1) * BATCH][hvd.rank() :: hvd.size()]
            yield pixels[rows], labels[rows]
        epoch, batch = epoch + 1, 0


class Report(keras.callbacks.Callback):
    """Has rank 0 print what came of an epoch."""

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        if logs and hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {logs['loss']:.4f}, {hvd.size()} workers", flush=True)


def main() -> None:
    hvd.init()
    keras.utils.set_random_seed(SEED)
    (pixels, labels), tests = map(arrays, load())
    model = keras.Sequential(
        [
            keras.layers.Input((PIXELS,)),
            keras.layers.Dense(HIDDEN, activation="relu"),
            keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(LEARNING_RATE, momentum=0.9)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        # XLA, which Keras would use on a GPU, cannot compile collectives.
        jit_compile=False,
    )
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    callbacks = [
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.callbacks.MetricAverageCallback(),
        Report(),
        hvd.elastic.CommitStateCallback(state),
    ]

    @hvd.elastic.run
    def train(state: hvd.elastic.KerasState) -> None:
        model.fit(
            shares(pixels, labels, state.epoch, state.batch),
            initial_epoch=state.epoch,
            epochs=EPOCHS,
            steps_per_epoch=len(pixels) // BATCH,
            callbacks=callbacks,
            verbose=0,
        )

    train(state)
    if hvd.rank() == 0:
        _, share = model.evaluate(*tests, verbose=0)
        print(f"reads {share:.1%} of the test digits", flush=True)


if __name__ == "__main__":
    main()
