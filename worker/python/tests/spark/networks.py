"""Models, losses and data of the estimator's tests. Executors find this module on their path."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from pyspark.sql import DataFrame, SparkSession

from elasticrun.examples.data import PIXELS, load
from elasticrun.spark.store import Store
from elasticrun.spark.torch import TorchEstimator

__all__ = [
    "FailsInSecondEpoch",
    "accuracy",
    "cross_entropy",
    "digits",
    "estimator",
    "share_right",
    "slow_cross_entropy",
    "softmax",
]


def digits(session: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Digits to train with and to test with: pixels as an array, and the digit."""
    schema = "pixels array<float>, label int"
    return tuple(  # type: ignore[return-value]
        session.createDataFrame([(list(map(float, digit.pixels)), digit.label) for digit in some], schema)
        for some in load()
    )


def softmax() -> torch.nn.Module:
    """Ten scores of an image."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(PIXELS, 10))


def cross_entropy(output: torch.Tensor, label: torch.Tensor, **more: Any) -> torch.Tensor:
    """As programs for Horovod write it: labels come as floats."""
    return F.cross_entropy(output, label.long(), **more)


def accuracy(output: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """The share of labels that have the highest score."""
    return (output.argmax(1) == label.long()).float().mean()


class slow_cross_entropy:  # Called as a function
    """A slow loss, which records its number of calls in a file."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._file = str(folder / "asked")
        self._seconds = seconds

    def __call__(self, output: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        time.sleep(self._seconds)
        with open(self._file, "a") as file:
            file.write(f"{len(label)}\n")
        return cross_entropy(output, label)


class FailsInSecondEpoch:
    """A loss that raises at the 30th call in a process. An epoch of the digits has 23, in two workers."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, output: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        self._calls += 1
        if self._calls >= 30:
            raise ArithmeticError("the loss has no value")
        return cross_entropy(output, label)


def estimator(store: str, env: dict[str, str], /, **keywords: Any) -> TorchEstimator:
    """An estimator of the digits, with its store and variables of its workers; keywords change it."""
    model = keywords.pop("model", None) or softmax()
    optimizer = keywords.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=0.25)
    plain = {
        "model": model,
        "optimizer": optimizer,
        "loss": cross_entropy,
        "feature_cols": ["pixels"],
        "label_cols": ["label"],
        "batch_size": 32,
        "epochs": 6,
        "num_proc": 2,
        "random_seed": 1,
        "store": Store(store),
        "env": {**env, "OMP_NUM_THREADS": "1"},
    }
    return TorchEstimator(**{**plain, **keywords})


def share_right(frame: DataFrame, column: str = "label__output") -> float:
    """The share of rows whose label has the highest score, 0 to 1."""
    rows = frame.select("label", column).collect()
    return sum(int(row[1].toArray().argmax()) == row[0] for row in rows) / len(rows)
