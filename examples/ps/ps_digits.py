"""Sparse logistic regression with a parameter server, asynchronous, in Python: what src/main.rs does, on the same images.

The weights are kept by the servers. A worker takes a few images, pulls the weights of the features that they have, and pushes
what its step adds to these. No worker waits for another one.

    examples/ps/run.sh 2 2 python examples/ps/ps_digits.py
"""

from __future__ import annotations

import argparse
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from elasticrun import ps

CLASSES = 10
#: A feature for each of the 64 pixels, and one that all images have.
FEATURES = 65
#: Servers serve equal ranges of all keys, so features are spread over them.
KEYS = np.arange(FEATURES, dtype=np.uint64) * np.uint64((2**64 - 1) // FEATURES)
#: The darkest shade. White is 0.
BLACK = 16

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


def load() -> tuple[Floats, Integers]:
    """Features, an image in each row, and the digits that they show."""
    file = resources.files("elasticrun.examples").joinpath("digits.csv")
    with file.open(encoding="ascii") as lines:
        table = np.loadtxt(lines, dtype=np.int64, delimiter=",")
    features = np.ones((len(table), FEATURES), np.float32)
    features[:, :-1] = table[:, :-1] / BLACK
    return features, table[:, -1]


def pull(kv: ps.KvWorker, images: Floats) -> tuple[NDArray[np.intp], Floats]:
    """The features that any of the images has, and their weights: a row of 10 for each. Those never pushed are zeros."""
    used = np.flatnonzero(images.any(axis=0))
    weights: Floats = kv.pull(KEYS[used], per_key=CLASSES).wait()
    return used, weights


def step(images: Floats, digits: Integers, weights: Floats, rate: float) -> Floats:
    """What a step of gradient descent adds to the weights of the features in the columns of ``images``."""
    likely = 1 / (1 + np.exp(-(images @ weights)))
    target = np.eye(CLASSES, dtype=np.float32)[digits]
    added: Floats = np.float32(rate) * (images.T @ (target - likely))
    return added


def work(node: ps.Postoffice, epochs: int, batch: int, rate: float) -> None:
    """Trains on the images of this worker."""
    kv = ps.KvWorker(np.float32)
    features, digits = load()
    # Every fifth image is for the test.
    test = np.arange(len(digits)) % 5 == 4
    own = np.flatnonzero(~test)[node.rank :: node.num_workers]
    for _ in range(epochs):
        pushed: ps.Handle[None] | None = None
        for first in range(0, len(own), batch):
            rows = own[first : first + batch]
            used, weights = pull(kv, features[rows])
            added = step(features[np.ix_(rows, used)], digits[rows], weights, rate)
            # The push before this one: more than one in flight would only make the weights older.
            before, pushed = pushed, kv.push(KEYS[used], added)
            if before is not None:
                before.wait()
        if pushed is not None:
            pushed.wait()
    print(f"worker {node.rank}: {len(own)} images, {epochs} epochs", flush=True)
    # All pushes are in the servers then.
    node.barrier(ps.WORKER_GROUP)
    if node.rank == 0:
        used, weights = pull(kv, features[test])
        found = (features[np.ix_(test, used)] @ weights).argmax(axis=1)
        share = (found == digits[test]).mean()
        print(f"accuracy {share:.3f} on {test.sum()} other images", flush=True)


def main() -> None:
    """Does what the variables say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20, help="how often each worker sees its images")
    parser.add_argument("--batch", type=int, default=8, help="images of a step")
    parser.add_argument("--rate", type=float, default=0.05, help="length of a step")
    arguments = parser.parse_args()
    with ps.start() as node:
        if node.role == "server":
            ps.KvServer(np.float32)
        elif node.role == "worker":
            work(node, arguments.epochs, arguments.batch, arguments.rate)


if __name__ == "__main__":
    main()
