"""The last rows of an epoch, which fill no batch: they are trained on, or left out with ``drop_last``."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("there is no torch here: make test-spark brings it", allow_module_level=True)

import torch
from jobs import Bench
from networks import estimator, slow_cross_entropy
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

import elasticrun.torch as hvd
from elasticrun.spark.torch.partial_batches import Rows, batch_norm_of, parts


class _Batch(dict[str, list[int]]):
    """Rows with one column."""

    def __init__(self, rows: int) -> None:
        super().__init__(x=list(range(rows)))
        self.rows = rows


@pytest.mark.parametrize(
    ("rows", "drop_last", "sizes"),
    [
        (8, False, [4, 4]),
        (5, False, [4, 1]),
        (5, True, [4, None]),
        (3, False, [3, None]),
        (3, True, [None, None]),
        (0, False, [None, None]),
    ],
)
def test_a_batch_is_split_into_parts(rows: int, drop_last: bool, sizes: list[int | None]):
    found = list(parts(_Batch(rows), 4, 2, drop_last))
    assert [part and len(part["x"]) for part in found] == sizes


def normalised(norm: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 3), norm, torch.nn.Linear(3, 2))


def test_a_single_row_is_normalised_with_the_running_statistics():
    model = normalised(torch.nn.BatchNorm1d(3))
    row = torch.ones(1, 2)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        model(row)
    before = [buffer.clone() for buffer in model.buffers()]
    with batch_norm_of(model, Rows(1, 17, True)):
        model(row).sum().backward()
    assert all(layer.training for layer in model.modules())
    assert all(torch.equal(*pair) for pair in zip(before, model.buffers(), strict=True))
    assert all(parameter.grad is not None for parameter in model.parameters())
    with batch_norm_of(model, Rows(2, 2, False)):
        assert model[1].training, "two rows have a variance"


def test_layers_that_a_model_keeps_in_evaluation_stay_so():
    model = normalised(torch.nn.BatchNorm1d(3))
    model[1].eval()
    with batch_norm_of(model, Rows(1, 17, True)):
        pass
    assert not model[1].training


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of one worker, for layers over the rows of all workers."""
    monkeypatch.setattr("elasticrun.torch.sync_batch_norm.host_transport", lambda: SimpleNamespace(size=1))


@pytest.mark.parametrize("kind", [torch.nn.BatchNorm2d, hvd.SyncBatchNorm])
def test_a_single_image_is_normalised_with_its_own_statistics(alone: None, kind: type[torch.nn.Module]):
    image = torch.arange(12.0).reshape(1, 3, 2, 2)
    plain, layer = kind(3), kind(3)
    expected = torch.nn.BatchNorm2d(3)(image)
    with batch_norm_of(layer, Rows(1, 1, True)):
        assert torch.allclose(layer(image), expected)
    assert not torch.equal(layer.running_mean, plain.running_mean)


@pytest.mark.parametrize("kind", [torch.nn.BatchNorm2d, hvd.SyncBatchNorm])
def test_a_layer_decides_for_each_of_its_inputs(alone: None, kind: type[torch.nn.Module]):
    """A layer that a model applies to an image, and to the mean of the image."""
    layer = kind(3)
    image = torch.arange(12.0).reshape(1, 3, 2, 2)
    with batch_norm_of(layer, Rows(1, 1, True)):
        layer(image)
        mean, count = layer.running_mean.clone(), layer.num_batches_tracked.clone()
        layer(image.mean((2, 3), keepdim=True))
        assert torch.equal(layer.running_mean, mean) and layer.num_batches_tracked == count
        with pytest.raises(RuntimeError):
            layer(torch.ones(1, 2, 1, 1))
        assert layer.training, "also after an error"
        keyword = "tensor" if isinstance(layer, hvd.SyncBatchNorm) else "input"
        layer(**{keyword: torch.ones(1, 3, 1, 1)})
        assert torch.equal(layer.running_mean, mean)
        layer(image)
        assert not torch.equal(layer.running_mean, mean)
    assert not layer._forward_hooks and not layer._forward_pre_hooks
    layer.eval()
    layer(image)
    assert not layer.training


@pytest.mark.parametrize(
    ("rows", "training"),
    [(Rows(1, 2, True), True), (Rows(4, 4, True), True), (Rows(4, 4, False), False)],
)
def test_layers_over_all_workers_need_rows_in_each(rows: Rows, training: bool):
    model = normalised(hvd.SyncBatchNorm(3))
    with batch_norm_of(model, rows):
        assert model[1].training == training
    assert model[1].training


def rows_of(session: SparkSession, count: int) -> DataFrame:
    return session.createDataFrame([([float(i), float(i % 3)], i % 2) for i in range(count)], "x array<float>, y int")


def fitted(bench: Bench, session: SparkSession, rows: int, model: torch.nn.Module, **keywords: Any) -> list[int]:
    """The sizes of all batches of two epochs of two workers."""
    made = estimator(
        str(bench.folder / "store"),
        bench.mark,
        model=model,
        loss=slow_cross_entropy(bench.folder, 0.0),
        feature_cols=["x"],
        label_cols=["y"],
        batch_size=16,
        epochs=2,
        **keywords,
    ).fit(rows_of(session, rows))
    assert all(entry["train"]["loss"] > 0 for entry in made.getHistory())
    return sorted(map(int, Path(bench.folder, "asked").read_text().split()))


def test_a_last_row_alone_breaks_no_batch_norm(bench: Bench, spark: SparkContext):
    """Each worker has a full batch and one row."""
    sizes = fitted(bench, SparkSession(spark), 34, normalised(torch.nn.BatchNorm1d(3)))
    assert sizes == [1] * 4 + [16] * 4


def test_drop_last_skips_what_fills_no_batch(bench: Bench, spark: SparkContext):
    sizes = fitted(bench, SparkSession(spark), 37, normalised(torch.nn.BatchNorm1d(3)), drop_last=True)
    assert sizes == [16] * 4


@pytest.mark.parametrize(("rows", "last"), [(33, [1]), (35, [1, 2])])
def test_few_rows_break_no_synchronised_batch_norm(bench: Bench, spark: SparkContext, rows: int, last: list[int]):
    """At the second step of an epoch, one worker has no row, or one row."""
    sizes = fitted(bench, SparkSession(spark), rows, normalised(hvd.SyncBatchNorm(3)))
    assert sizes == sorted(2 * last) + [16] * 4
