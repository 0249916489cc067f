"""Learns to read handwritten digits with the standard library: softmax regression that survives the loss of workers.

python -m elasticrun.examples.digits
elasticrun -np 4 --min-np 2 python -m elasticrun.examples.digits
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import elasticrun
from elasticrun import ArrayState, ElasticSampler
from elasticrun.examples.data import CLASSES, PIXELS, Digit, load

EPOCHS = 6
BATCH = 32
LEARNING_RATE = 0.5

#: For each class a weight for each pixel, and a bias.
ROW = PIXELS + 1


def scores(weights: Sequence[float], digit: Digit) -> list[float]:
    """The score of the digit for each class."""
    rows = (weights[start : start + ROW] for start in range(0, CLASSES * ROW, ROW))
    return [sum(map(float.__mul__, row, digit.pixels)) + row[-1] for row in rows]


def add_gradient(weights: Sequence[float], digit: Digit, gradient: array[float]) -> float:
    """Adds the gradient of the digit's loss (cross-entropy) to ``gradient``, and returns the loss."""
    given = scores(weights, digit)
    highest = max(given)
    exponents = [math.exp(score - highest) for score in given]
    total = sum(exponents)
    for kind, exponent in enumerate(exponents):
        slope = exponent / total - (kind == digit.label)
        for pixel, value in enumerate(digit.pixels, kind * ROW):
            if value:
                gradient[pixel] += slope * value
        gradient[kind * ROW + PIXELS] += slope
    return math.log(total) + highest - given[digit.label]


def accuracy(weights: Sequence[float], digits: Sequence[Digit]) -> float:
    """The share of correctly classified digits, 0 to 1."""
    right = 0
    for digit in digits:
        given = scores(weights, digit)
        right += given.index(max(given)) == digit.label
    return right / len(digits)


def main() -> None:
    """Trains; rank 0 prints the results."""
    elasticrun.init()
    digits, tests = load()
    sampler = ElasticSampler(digits)
    state = ArrayState(weights=array("d", bytes(8 * CLASSES * ROW)), sampler=sampler, loss=0.0)

    @elasticrun.elastic.run
    def train(state: ArrayState) -> float:
        weights: array[float] = state.weights
        while sampler.epoch < EPOCHS:
            for batch in sampler.batches(BATCH):
                # The last element is the loss.
                sums = array("d", bytes(8 * (len(weights) + 1)))
                for index in batch:
                    sums[-1] += add_gradient(weights, digits[index], sums)
                elasticrun.allreduce_(sums, elasticrun.Sum)
                for index in range(len(weights)):
                    weights[index] -= LEARNING_RATE * sums[index] / batch.global_size
                state.loss += sums[-1]
                sampler.record(batch)
                state.commit()
            if elasticrun.rank() == 0:
                loss = state.loss / len(digits)
                print(
                    f"epoch {sampler.epoch + 1}: loss {loss:.4f}, {elasticrun.size()} workers",
                    flush=True,
                )
            state.loss = 0.0
            sampler.set_epoch(sampler.epoch + 1)
        return accuracy(weights, tests)

    share = train(state)
    if elasticrun.rank() == 0:
        print(f"reads {share:.1%} of the test digits", flush=True)


if __name__ == "__main__":
    main()
