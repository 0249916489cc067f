"""Models, losses and data of the estimator's tests. Executors find this module on their path."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from pyspark.sql import DataFrame, SparkSession

from elasticrun.examples.data import PIXELS, load

__all__ = ["accuracy", "cross_entropy", "digits", "share_right", "slow_cross_entropy", "softmax"]


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


def share_right(frame: DataFrame, column: str = "label__output") -> float:
    """The share of rows whose label has the highest score, 0 to 1."""
    rows = frame.select("label", column).collect()
    return sum(int(row[1].toArray().argmax()) == row[0] for row in rows) / len(rows)
