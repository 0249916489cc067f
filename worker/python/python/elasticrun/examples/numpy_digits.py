"""Learns to read handwritten digits with NumPy: a small network that survives the loss of workers.

python -m elasticrun.examples.numpy_digits
elasticrun -np 4 --min-np 2 python -m elasticrun.examples.numpy_digits
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import elasticrun
from elasticrun import ArrayState, ElasticSampler
from elasticrun.examples.data import CLASSES, PIXELS, Digit, load

EPOCHS = 8
BATCH = 32
LEARNING_RATE = 0.05
MOMENTUM = 0.9
HIDDEN = 64
SEED = 1998

Floats = NDArray[np.float32]


class Network:
    """Two layers, as views of one flat vector of parameters."""

    size = HIDDEN * PIXELS + HIDDEN + CLASSES * HIDDEN + CLASSES

    def __init__(self, flat: Floats) -> None:
        sizes = [HIDDEN * PIXELS, HIDDEN, CLASSES * HIDDEN]
        hidden, self.hidden_bias, output, self.output_bias = np.split(flat, np.cumsum(sizes))
        self.hidden = hidden.reshape(HIDDEN, PIXELS)
        self.output = output.reshape(CLASSES, HIDDEN)

    def forward(self, pixels: Floats) -> tuple[Floats, Floats]:
        """Activations of hidden units and outputs for images in rows."""
        hidden = np.maximum(pixels @ self.hidden.T + self.hidden_bias, 0)
        return hidden, hidden @ self.output.T + self.output_bias


def initial() -> Floats:
    """Random parameters, uniform, scaled by the inputs of each layer; the same in all workers."""
    random = np.random.default_rng(SEED)
    flat = np.zeros(Network.size, np.float32)
    network = Network(flat)
    for weights in (network.hidden, network.output):
        bound = np.sqrt(6 / weights.shape[1])
        weights[:] = random.uniform(-bound, bound, weights.shape)
    return flat


def gradient(flat: Floats, pixels: Floats, labels: NDArray[np.intp]) -> tuple[Floats, float]:
    """Gradient and loss (cross-entropy), summed over images in rows. There may be no image."""
    network = Network(flat)
    hidden, output = network.forward(pixels)
    output -= output.max(axis=1, keepdims=True)
    log_share = output - np.log(np.exp(output).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))
    slopes = np.exp(log_share)
    slopes[rows, labels] -= 1
    sums = np.zeros_like(flat)
    to = Network(sums)
    to.output[:] = slopes.T @ hidden
    to.output_bias[:] = slopes.sum(axis=0)
    slopes = (slopes @ network.output) * (hidden > 0)
    to.hidden[:] = slopes.T @ pixels
    to.hidden_bias[:] = slopes.sum(axis=0)
    return sums, float(-log_share[rows, labels].sum())


def arrays(digits: list[Digit]) -> tuple[Floats, NDArray[np.intp]]:
    """Images in rows, and their labels."""
    pixels = np.array([digit.pixels for digit in digits], np.float32)
    return pixels, np.array([digit.label for digit in digits], np.intp)


def main() -> None:
    """Trains; rank 0 prints the results."""
    elasticrun.init()
    (pixels, labels), (test_pixels, test_labels) = map(arrays, load())
    sampler = ElasticSampler(pixels, seed=SEED)
    state = ArrayState(weights=initial(), velocity=np.zeros(Network.size, np.float32), sampler=sampler, loss=0.0)

    @elasticrun.elastic.run
    def train(state: ArrayState) -> float:
        while sampler.epoch < EPOCHS:
            for batch in sampler.batches(BATCH):
                sums, loss = gradient(state.weights, pixels[batch.indices], labels[batch.indices])
                elasticrun.allreduce_(sums, elasticrun.Sum)
                state.velocity *= MOMENTUM
                state.velocity -= LEARNING_RATE / batch.global_size * sums
                state.weights += state.velocity
                state.loss += elasticrun.allreduce(loss, elasticrun.Sum)
                sampler.record(batch)
                state.commit()
            if elasticrun.rank() == 0:
                loss = state.loss / len(pixels)
                print(
                    f"epoch {sampler.epoch + 1}: loss {loss:.4f}, {elasticrun.size()} workers",
                    flush=True,
                )
            state.loss = 0.0
            sampler.set_epoch(sampler.epoch + 1)
        _, output = Network(state.weights).forward(test_pixels)
        return float((output.argmax(axis=1) == test_labels).mean())

    share = train(state)
    if elasticrun.rank() == 0:
        print(f"reads {share:.1%} of the test digits", flush=True)


if __name__ == "__main__":
    main()
