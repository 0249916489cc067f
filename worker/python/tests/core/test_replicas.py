"""The check whether the commits of several workers are replicas: the answers and the errors."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from elasticrun import codec
from elasticrun.codec import Stored
from elasticrun.elastic.replicas import Replicas
from elasticrun.errors import StateError


class Weights:
    """A parameter, as the coders of frameworks mark them."""

    def __init__(self, *values: float, dtype: str = "float32") -> None:
        self.values = numpy.array(values, dtype)


class WeightsCoder:
    def encode(self, array: Weights) -> Stored:
        values = array.values
        meta = str(values.dtype), values.shape
        return Stored(meta, values.ctypes.data, values.nbytes, values)

    def decode(self, meta: Any, data: memoryview, live: Any | None) -> Weights:
        raise NotImplementedError

    def describe(self, meta: Any) -> tuple[str, bool]:
        return f"{meta[0]}{list(meta[1])}", True

    def digest(self, data: memoryview) -> int:
        return hash(bytes(data))

    def sketch(self, meta: Any, data: memoryview) -> list[float]:
        values = numpy.frombuffer(data, meta[0]).astype(float)
        return [float(numpy.linalg.norm(values)), *values.tolist()]


codec.register(Weights, "weights", WeightsCoder())


def compared(*states: object) -> None:
    """Has workers compare what they have committed; None holds nothing. All must come to the same end."""
    kept = [None if state is None else codec.encode(state).copy() for state in states]
    commits = [None if one is None else (one.head, one.views()) for one in kept]
    workers = [Replicas() for _ in states]
    heard: list[bytes] | None = None
    while True:
        told, errors = [], []
        for worker, commit in zip(workers, commits, strict=True):
            try:
                told.append(worker(commit, heard))
            except StateError as error:
                errors.append(error)
        if errors:
            assert len(errors) == len(states) and len({str(error) for error in errors}) == 1
            raise errors[0]
        if None in told:
            assert told == [None] * len(states)
            return
        heard = [words for words in told if words is not None]


def test_values_of_plain_arrays_and_objects_may_differ() -> None:
    compared(
        {"seed": numpy.zeros(3), "note": "one", "list": [1]},
        None,
        {"seed": numpy.ones(3), "note": "two", "list": [1, 2]},
    )


def test_arrays_of_other_shapes_or_types_are_no_replicas() -> None:
    with pytest.raises(StateError, match=r"^a\[x\] of rank 0 is float64\[3\], that of rank 2 is float64\[4\]"):
        compared({"a": {"x": numpy.zeros(3)}}, None, {"a": {"x": numpy.zeros(4)}})
    with pytest.raises(StateError, match=r"rank 1 is float64\[3\], that of rank 2 is float32\[3\]"):
        compared(None, {"a": numpy.zeros(3)}, {"a": numpy.zeros(3, "float32")})


def test_parameters_that_one_worker_lacks_are_those_of_another_stage() -> None:
    with pytest.raises(StateError, match=r"^m\[second\] of rank 0 is not there, that of rank 1 is float32\[1\]"):
        compared({"m": {"first": Weights(1)}}, {"m": {"first": Weights(1), "second": Weights(2)}})
    # Other arrays may be there or not.
    compared({"m": Weights(1)}, {"m": Weights(1), "history": [numpy.zeros(1)]})


def test_parameters_may_differ_by_rounding_only() -> None:
    compared({"w": Weights(1, 2, 3)}, {"w": Weights(1, 2, 3.0001)}, None)
    compared({"w": Weights(1, 2, 3, dtype="float16")}, {"w": Weights(1, 2, 3.01, dtype="float16")})
    with pytest.raises(StateError, match=r"^b of rank 0 is float32\[2\], that of rank 2 is one with other values"):
        compared(
            {"a": Weights(1, 2), "b": Weights(1, 2)},
            {"a": Weights(1, 2), "b": Weights(1, 2)},
            {"a": Weights(1, 2), "b": Weights(2, 1)},
        )
    compared({"w": Weights(float("nan"), 1)}, {"w": Weights(float("nan"), 2)})
    with pytest.raises(StateError, match="w of rank 0"):
        compared({"w": Weights(float("nan"))}, {"w": Weights(1)})
