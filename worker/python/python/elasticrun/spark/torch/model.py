"""A trained torch model as a transformer of data frames."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from pyspark import cloudpickle, keyword_only
from pyspark.ml import Model
from pyspark.ml.param import TypeConverters
from pyspark.ml.param.shared import HasOutputCols
from pyspark.sql import DataFrame

from . import columns
from .batches import TensorSpec, outputs_of
from .keywords import given, param, with_accessors
from .objective import width_of
from .persistence import Persistent

__all__ = ["TorchModel"]


@with_accessors
class TorchModel(Model, HasOutputCols, Persistent):
    """Adds a column with the model's output for each label: a number, or a vector if the output has several values.

    Executors apply the model to batches of rows. Neither pandas nor pyarrow is needed. ``getModel()`` returns the module,
    ``getHistory()`` an entry for each epoch: ``{"epoch": 0, "train": {"loss": ..., "all_metrics": [...]},
    "validation": {...}}``.

    Args:
        model: the module, in evaluation mode and on the CPU.
        feature_columns: columns of the model's arguments, in order.
        label_columns: a column for each output of the model. The frame need not contain them.
        input_shapes: shapes of the model's arguments, with -1 for the number of rows.
        input_dtypes: types of the model's arguments. Default: ``torch.float32``.
        batch_size: rows per call of the model. Default: 256.
        history: results of the training epochs.
        optimizer: the optimizer of the training, with its state.
        run_id: id of the training run.
        output_widths: values in a row of each output; None for single values. Default: those of a frame's first row.
    """

    model = param("model", "torch module")
    feature_columns = param("feature_columns", "columns that are arguments of the model", TypeConverters.toListString)
    label_columns = param("label_columns", "a column for each output of the model", TypeConverters.toListString)
    input_shapes = param("input_shapes", "shapes of the model's arguments")
    input_dtypes = param("input_dtypes", "types of the model's arguments")
    batch_size = param("batch_size", "rows that go through the model at a time", TypeConverters.toInt)
    history = param("history", "an entry for each epoch")
    optimizer = param("optimizer", "the optimizer that trained it")
    run_id = param("run_id", "of the training", TypeConverters.toString)
    output_widths = param("output_widths", "values of each output in a row")

    @keyword_only
    def __init__(
        self,
        *,
        model: torch.nn.Module | None = None,
        feature_columns: Sequence[str] | None = None,
        label_columns: Sequence[str] | None = None,
        input_shapes: Sequence[Sequence[int]] | None = None,
        input_dtypes: Sequence[torch.dtype] | None = None,
        batch_size: int | None = None,
        history: list[dict[str, Any]] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        run_id: str | None = None,
        output_widths: list[int | None] | None = None,
    ) -> None:
        super().__init__()
        self._setDefault(batch_size=256)
        self._set(**given(self._input_kwargs))
        if label_columns:
            self.setOutputCols([f"{label}__output" for label in label_columns])

    def setOutputCols(self, value: list[str]) -> TorchModel:  # Spark's name
        """Sets the names of the columns that are added, one for each label."""
        self._set(outputCols=value)
        return self

    def _transform(self, frame: DataFrame) -> DataFrame:
        from pyspark.ml.linalg import VectorUDT
        from pyspark.sql.types import DoubleType, StructField, StructType

        module, labels, outputs = self.getModel(), self.getLabelColumns(), self.getOutputCols()
        if module is None:
            raise ValueError("model: missing: expected a torch module")
        features = columns.names_of("feature_columns", self.getFeatureColumns(), frame.columns)
        columns.check(frame, features)
        if len(outputs) != len(labels):
            raise ValueError(f"outputCols={outputs}: expected a name for each of the labels {labels}")
        for name in outputs:
            if name in frame.columns:
                raise ValueError(
                    f"outputCols: the data frame has a column {name!r} already: setOutputCols gives another name"
                )
        spec = TensorSpec.from_arguments(features, self.getInputShapes(), self.getInputDtypes(), "input")
        module.eval()
        widths = self.getOutputWidths() or _widths(module, spec, labels, frame)
        session = frame.sparkSession
        pickled = session.sparkContext.broadcast(cloudpickle.dumps(module))
        predict = _Predict(pickled, spec, tuple(labels), tuple(widths), self.getBatchSize())
        kinds = [DoubleType() if width is None else VectorUDT() for width in widths]
        added = [StructField(name, kind, True) for name, kind in zip(outputs, kinds, strict=True)]
        schema = StructType([*frame.schema.fields, *added])
        return session.createDataFrame(frame.rdd.mapPartitions(predict), schema, verifySchema=False)


class _Predict:
    """Applies the model to the rows of a partition, on an executor."""

    def __init__(
        self, pickled: Any, spec: TensorSpec, labels: tuple[str, ...], widths: tuple[int | None, ...], batch_size: int
    ) -> None:
        self._pickled = pickled
        self._spec = spec
        self._labels = labels
        self._widths = widths
        self._batch_size = batch_size

    def __call__(self, rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        module = pickle.loads(self._pickled.value)
        rows = iter(rows)
        while several := list(itertools.islice(rows, self._batch_size)):
            given = predicted(module, self._spec, self._labels, several)
            values = [_values(output, width) for output, width in zip(given, self._widths, strict=True)]
            yield from (tuple(row) + added for row, added in zip(several, zip(*values, strict=True), strict=True))


def predicted(
    module: torch.nn.Module, spec: TensorSpec, labels: Sequence[str], rows: Sequence[Any]
) -> list[torch.Tensor]:
    """The model's outputs for rows of a data frame."""
    batch = {name: _array(name, [row[name] for row in rows]) for name in spec.names}
    with torch.no_grad():
        return outputs_of(module(*spec.tensors(batch)), labels)


def _array(name: str, values: list[Any]) -> Any:
    import numpy as np

    if any(value is None for value in values):
        raise ValueError(f"column {name!r} has a row without a value: expected one in each")
    # Vectors, also sparse ones, have a conversion to arrays.
    plain = [value.toArray() if hasattr(value, "toArray") else value for value in values]
    array = np.asarray(plain)
    return array if array.dtype != object else array.astype(float)


def _values(output: torch.Tensor, width: int | None) -> list[Any]:
    from pyspark.ml.linalg import DenseVector

    flat = output.reshape(len(output), -1).double().numpy()
    return flat[:, 0].tolist() if width is None else [DenseVector(row) for row in flat]


def _widths(module: torch.nn.Module, spec: TensorSpec, labels: Sequence[str], frame: DataFrame) -> list[int | None]:
    """Number of values in a row of each output, from the first row. Without rows the result does not matter."""
    first = frame.head(1)
    return [width_of(output) for output in predicted(module, spec, labels, first)] if first else [None] * len(labels)
