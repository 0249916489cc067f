"""The estimator for torch models: it fits on executors that may go, predicts, and is saved and loaded."""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("there is no torch here: make test-spark brings it", allow_module_level=True)

import torch
from cluster import eventually
from jobs import Bench
from networks import accuracy, cross_entropy, digits, estimator, share_right, slow_cross_entropy, softmax
from pyspark import SparkContext
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession

from elasticrun.errors import WorkerFailedError
from elasticrun.spark.torch import TorchEstimator, TorchModel
from elasticrun.spark.torch.keywords import REFUSED, UNUSED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@pytest.fixture
def session(bench: Bench, spark: SparkContext) -> SparkSession:
    return SparkSession(spark)


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Path]:
    """The directory of a store, in which no data is left behind."""
    folder = tmp_path / "store"
    folder.mkdir()
    yield folder
    assert not list(folder.rglob("*.parquet")), "data is deleted behind a fit"


@pytest.fixture
def make(bench: Bench, stored: Path) -> Any:
    """Makes estimators of the digits; keywords change them."""

    def make(**keywords: Any) -> TorchEstimator:
        return estimator(str(stored), bench.mark, **keywords)

    return make


def test_it_learns_to_read_digits_and_says_what_each_epoch_came_to(session: SparkSession, make: Any):
    train, test = digits(session)
    estimator = make(validation=0.2, metrics=[accuracy])
    before = {name: value.clone() for name, value in estimator.getModel().state_dict().items()}
    model = estimator.fit(train)
    predicted = model.transform(test)
    assert predicted.columns == ["pixels", "label", "label__output"]
    assert share_right(predicted) > 0.9
    history = model.getHistory()
    assert [entry["epoch"] for entry in history] == list(range(6))
    losses = [entry["train"]["loss"] for entry in history]
    assert losses == sorted(losses, reverse=True), "it gets better"
    assert history[-1]["validation"]["all_metrics"][0]["accuracy_label"] > 0.85
    after = estimator.getModel().state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items()), "the model that was given stays"
    # The rate that was given, and not that times the workers.
    assert model.getOptimizer().param_groups[0]["lr"] == 0.25


def test_an_executor_that_is_killed_costs_no_row(bench: Bench, session: SparkSession, make: Any, tmp_path: Path, capfd):
    train, test = digits(session)
    loss = slow_cross_entropy(tmp_path, 0.02)
    estimator = make(loss=loss, num_proc=4, min_num_proc=1, steps_per_commit=1)
    asked = tmp_path / "asked"

    def kill() -> None:
        eventually(lambda: asked.exists() and len(asked.read_text().splitlines()) > 60, "it trains")
        os.kill(next(iter(bench.cluster.executors())), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    model = estimator.fit(train)
    killer.join()
    said = capfd.readouterr().out + capfd.readouterr().err
    assert share_right(model.transform(test)) > 0.9
    assert len(model.getHistory()) == 6
    rows = sum(map(int, asked.read_text().splitlines()))
    # Steps of the round that was broken are done again: at most one of four workers with 32 rows each.
    assert 6 * train.count() <= rows <= 6 * train.count() + 4 * 32, said


def test_what_is_saved_predicts_the_same(session: SparkSession, make: Any, tmp_path: Path):
    train, test = digits(session)
    estimator = make(epochs=1)
    estimator.write().overwrite().save(f"file://{tmp_path}/estimator")
    model = TorchEstimator.load(f"file://{tmp_path}/estimator").fit(train)
    place = f"file://{tmp_path}/model"
    model.save(place)
    with pytest.raises(Exception, match="exist"):
        model.save(place)
    model.write().overwrite().save(place)
    loaded = TorchModel.load(place)
    assert loaded.uid == model.uid
    assert loaded.getHistory() == model.getHistory()
    assert loaded.transform(test).collect() == model.transform(test).collect()
    with pytest.raises(ValueError, match="is a elasticrun.spark.torch.model.TorchModel: expected a .*TorchEstimator"):
        TorchEstimator.load(place)


def test_it_is_a_stage_of_a_pipeline(session: SparkSession, make: Any, tmp_path: Path):
    rows = [(float(x), float(y), 3.0 * x - 2.0 * y + 1.0) for x in range(-8, 8) for y in range(-8, 8)]
    frame = session.createDataFrame(rows, "x double, y double, z double")
    line = torch.nn.Linear(2, 1)
    stage = make(
        model=line,
        optimizer=torch.optim.SGD(line.parameters(), lr=0.01),
        loss=torch.nn.MSELoss(),
        feature_cols=["both"],
        label_cols=["z"],
        epochs=12,
    )
    fitted = Pipeline(stages=[VectorAssembler(inputCols=["x", "y"], outputCol="both"), stage]).fit(frame)
    place = f"file://{tmp_path}/pipeline"
    fitted.write().overwrite().save(place)
    found = PipelineModel.load(place).transform(frame)
    assert dict(found.dtypes)["z__output"] == "double"
    assert max(abs(row.z - row.z__output) for row in found.collect()) < 0.1


def test_a_run_is_gone_on_with(session: SparkSession, make: Any):
    train, _ = digits(session)
    first = make(epochs=2, run_id="mine").fit(train).getHistory()
    second = make(epochs=1, run_id="mine").fit(train).getHistory()
    assert second[0]["train"]["loss"] < first[-1]["train"]["loss"]


def test_steps_are_bounded_and_rows_are_weighed(session: SparkSession, make: Any):
    frame = digits(session)[0].selectExpr("pixels", "label", "if(label < 5, 1.0, 0.0) as weight", "label = 3 as third")
    model = make(
        epochs=2, sample_weight_col="weight", validation="third", train_steps_per_epoch=10, backward_passes_per_step=2
    ).fit(frame)
    small, large = (model.transform(frame.where(f"label {of} and label != 3")) for of in ("< 5", ">= 5"))
    assert share_right(small) > 0.8
    assert share_right(large) < 0.2, "nobody told it of these"
    assert all("validation" in entry for entry in model.getHistory())


def test_a_frame_without_labels_and_with_sparse_vectors_is_predicted(session: SparkSession):
    model = TorchModel(model=torch.nn.Linear(3, 1), feature_columns=["v"], label_columns=["y"])
    frame = session.createDataFrame([(Vectors.sparse(3, {1: 2.0}),), (Vectors.dense(0.0, 2.0, 0.0),)], ["v"])
    one, other = model.transform(frame).collect()
    assert one.y__output == pytest.approx(other.y__output)
    assert model.setOutputCols(["p"]).transform(frame).columns == ["v", "p"]
    assert model.transform(frame.limit(0)).collect() == []


class _Locked(torch.nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 10)
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"feature_cols": ["pixel"]}, ValueError, "feature_cols: there is no column 'pixel'; there are: pixels, label"),
        ({"feature_cols": []}, ValueError, r"feature_cols=\[\]: expected a list of names"),
        ({"label_cols": ["name"]}, TypeError, "column 'name' of type string can be no tensor: expected numbers"),
        ({"sample_weight_col": "weigth"}, ValueError, "sample_weight_col: there is no column 'weigth'"),
        ({"label_cols": ["holes"]}, ValueError, r"column 'holes' has 1 row\(s\) without a value"),
        ({"feature_cols": ["ragged"]}, ValueError, "column 'ragged' has from 1 to 2 values in a row"),
        ({"validation": 1.5}, ValueError, "validation=1.5: expected a share from 0 to below 1"),
        ({"batch_size": 0}, ValueError, "batch_size=0: expected at least 1"),
        ({"random_seed": -1}, ValueError, "random_seed=-1: expected at least 0"),
        ({"input_shapes": [[-1, 8], [-1, 8]]}, ValueError, r"input_shapes: 2 for 1 column\(s\)"),
        ({"input_shapes": [[-1, 8]]}, ValueError, r"column 'pixels' has 1 value\(s\) in a row, \[-1, 8\] takes 8"),
        ({"loss": [cross_entropy, cross_entropy]}, ValueError, r"loss: 2 for 1 label column\(s\)"),
        ({"model": _Locked()}, TypeError, "model: cannot be pickled"),
        (
            {"optimizer": torch.optim.SGD(softmax().parameters())},
            ValueError,
            "optimizer: is over parameters that are not",
        ),
        ({"store": 5}, TypeError, "store=5: expected an elasticrun.spark.store.Store"),
        ({"store": "hdfs://name/x"}, ValueError, "workers cannot read hdfs://"),
    ],
)
def test_what_is_wrong_is_said(session: SparkSession, make: Any, keywords: Any, error: Any, message: str):
    frame = session.createDataFrame(
        [([1.0], 1, "a", 1, [1.0]), ([2.0], 2, "b", None, [1.0, 2.0])],
        "pixels array<float>, label int, name string, holes int, ragged array<float>",
    )
    with pytest.raises(error, match=message):
        make(**keywords).fit(frame)


def test_rows_with_nan_are_counted(session: SparkSession, make: Any):
    nan = float("nan")
    frame = session.createDataFrame(
        [([1.0, nan], 1, nan), ([nan, nan], 0, 1.0), ([1.0, 1.0], 1, 2.0)] * 4,
        "pixels array<float>, label int, weight double",
    )
    net = torch.nn.Linear(2, 2)
    estimator = make(
        model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), sample_weight_col="weight", epochs=1
    )
    with pytest.warns(UserWarning, match="NaN") as warned:
        estimator.fit(frame)
    found = [str(warning.message).split(",")[0] for warning in warned if "NaN" in str(warning.message)]
    assert found == ["column 'pixels' has NaN in 8 row(s)", "column 'weight' has NaN in 4 row(s)"]


def test_what_is_wrong_with_a_model_is_quoted(session: SparkSession, make: Any):
    train, _ = digits(session)
    with pytest.raises(WorkerFailedError, match="mat1 and mat2 shapes cannot be multiplied"):
        make(model=torch.nn.Linear(3, 10)).fit(train)


def test_a_frame_without_rows_is_refused(session: SparkSession, make: Any):
    frame: DataFrame = digits(session)[0]
    with pytest.raises(ValueError, match="no rows: expected at least one"):
        make().fit(frame.limit(0))
    with pytest.raises(ValueError, match=r"validation='all': takes all 3 row\(s\)"):
        make(validation="all").fit(frame.limit(3).selectExpr("*", "true as all"))


def test_keywords_of_horovod_are_refused_by_name_or_make_no_difference(make: Any):
    with pytest.raises(TypeError, match="loss_constructors=.*: not supported: give loss"):
        make(loss_constructors=[])
    with pytest.raises(TypeError, match="lossy=.*: there is no such keyword"):
        make(lossy=1)
    with pytest.warns(UserWarning, match="partitions_per_process=.*makes no difference"):
        make(partitions_per_process=4)
    text = (Path(__file__).parents[4] / "docs/spark.md").read_text()
    for name in [*REFUSED, *UNUSED, *(parameter.name for parameter in make().params)]:
        assert f"`{name}`" in text, f"docs/spark.md says nothing of {name}"
    estimator = make().setBatchSize(8).setParams(epochs=3)
    assert (estimator.getBatchSize(), estimator.getEpochs(), estimator.getRunId()) == (8, 3, None)
    assert estimator.copy({estimator.epochs: 4}).getEpochs() == 4
