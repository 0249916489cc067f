"""Learns to read handwritten digits with JAX: a small network, whatever becomes of the workers.

python jax_digits.py
elasticrun -np 4 --min-np 2 python jax_digits.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import elasticrun
from elasticrun import ElasticSampler, JaxState
from elasticrun.examples.data import CLASSES, PIXELS, Digit, load

EPOCHS = 8
BATCH = 32
LEARNING_RATE = 0.05
MOMENTUM = 0.9
HIDDEN = 64
SEED = 1998

#: Arrays of JAX in dictionaries.
Tree = dict[str, Any]


def initial(key: jax.Array) -> Tree:
    """Random parameters, uniform, scaled by the inputs of each layer; the same in all workers."""
    layers = {}
    shapes = {"hidden": (PIXELS, HIDDEN), "output": (HIDDEN, CLASSES)}
    for own, (name, shape) in zip(jax.random.split(key), shapes.items(), strict=True):
        bound = (6 / shape[0]) ** 0.5
        layers[name] = {
            "weights": jax.random.uniform(own, shape, minval=-bound, maxval=bound),
            "bias": jnp.zeros(shape[1]),
        }
    return layers


def forward(params: Tree, pixels: Any) -> jax.Array:
    hidden = jax.nn.relu(pixels @ params["hidden"]["weights"] + params["hidden"]["bias"])
    return hidden @ params["output"]["weights"] + params["output"]["bias"]


@jax.jit
@jax.value_and_grad
def loss_and_gradient(params: Tree, pixels: jax.Array, labels: jax.Array, real: jax.Array) -> jax.Array:
    """Loss (cross-entropy), summed over the images that are ``real`` (1) and not filled up with (0)."""
    shares = jax.nn.log_softmax(forward(params, pixels))
    return -(jnp.take_along_axis(shares, labels[:, None], axis=1)[:, 0] * real).sum()


@jax.jit
def step(params: Tree, velocity: Tree, gradient: Tree, count: int) -> tuple[Tree, Tree]:
    velocity = jax.tree.map(lambda speed, slope: MOMENTUM * speed - LEARNING_RATE / count * slope, velocity, gradient)
    return jax.tree.map(jnp.add, params, velocity), velocity


def arrays(digits: Sequence[Digit]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images in rows, and their labels."""
    return (
        np.array([digit.pixels for digit in digits], np.float32),
        np.array([digit.label for digit in digits], np.int32),
    )


def main() -> None:
    elasticrun.init()
    (pixels, labels), (test_pixels, test_labels) = map(arrays, load())
    sampler = ElasticSampler(pixels, seed=SEED)
    params = initial(jax.random.key(SEED))
    state = JaxState(params=params, velocity=jax.tree.map(jnp.zeros_like, params), sampler=sampler, loss=0.0)

    @elasticrun.elastic.run
    def train(state: JaxState) -> float:
        while sampler.epoch < EPOCHS:
            for batch in sampler.batches(BATCH):
                # As many rows in each batch, so that one compiled function serves all.
                rows = np.zeros(BATCH, np.int64)
                rows[: len(batch)] = batch.indices
                real = np.arange(BATCH) < len(batch)
                loss, gradient = loss_and_gradient(state.params, pixels[rows], labels[rows], real)
                leaves, tree = jax.tree.flatten((loss, gradient))
                loss, gradient = tree.unflatten(elasticrun.grouped_allreduce(leaves, elasticrun.Sum))
                state.params, state.velocity = step(state.params, state.velocity, gradient, batch.global_size)
                state.loss += float(loss)
                sampler.record(batch)
                state.commit()
            if elasticrun.rank() == 0:
                mean = state.loss / len(pixels)
                print(
                    f"epoch {sampler.epoch + 1}: loss {mean:.4f}, {elasticrun.size()} workers",
                    flush=True,
                )
            state.loss = 0.0
            sampler.set_epoch(sampler.epoch + 1)
        return float((forward(state.params, test_pixels).argmax(axis=1) == test_labels).mean())

    share = train(state)
    if elasticrun.rank() == 0:
        print(f"reads {share:.1%} of the test digits", flush=True)


if __name__ == "__main__":
    main()
