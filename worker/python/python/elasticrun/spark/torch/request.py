"""Reads and validates the estimator's parameters for a fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from ..store import Store
from . import columns
from .batches import TensorSpec
from .data import Prepared
from .keywords import given
from .objective import Objective
from .train import TrainSpec

__all__ = ["Request"]


class Request:
    """The validated parameters of a fit.

    Args:
        get: returns the value of a parameter by name; None if it is not set.
    """

    def __init__(self, get: Callable[[str], Any]) -> None:
        self._get = get

    def objective(self, frame: DataFrame) -> Objective:
        """The objective, after a check of the columns."""
        features = columns.names_of("feature_cols", self._get("feature_cols"), frame.columns)
        labels = columns.names_of("label_cols", self._get("label_cols"), frame.columns)
        weight = self._get("sample_weight_col")
        if weight is not None:
            columns.names_of("sample_weight_col", [weight], frame.columns)
        columns.check(frame, [*features, *labels, *([weight] if weight else [])])
        loss = self._required("loss")
        losses = list(loss) if isinstance(loss, (list, tuple)) else [loss] * len(labels)
        weights = self._get("loss_weights") or [1.0] * len(labels)
        for name, several in (("loss", losses), ("loss_weights", weights)):
            if len(several) != len(labels):
                raise ValueError(f"{name}: {len(several)} for {len(labels)} label column(s): expected one for each")
        return Objective(
            TensorSpec.from_arguments(features, self._get("input_shapes"), self._get("input_dtypes"), "input"),
            TensorSpec.from_arguments(labels, self._get("label_shapes"), self._get("label_dtypes"), "label"),
            tuple(losses),
            tuple(weights),
            tuple(self._get("metrics") or ()),
            weight,
        )

    def check_numbers(self) -> None:
        """Raises ValueError if a number is too small."""
        for name in (
            "batch_size",
            "val_batch_size",
            "epochs",
            "train_steps_per_epoch",
            "validation_steps_per_epoch",
            "backward_passes_per_step",
            "checkpoint_every",
            "steps_per_commit",
            "row_group_bytes",
            "train_reader_num_workers",
        ):
            value = self._get(name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}: expected at least 1")
        for name in ("random_seed", "shuffle_buffer_size"):
            value = self._get(name)
            if value is not None and value < 0:
                raise ValueError(f"{name}={value}: expected at least 0")

    def validation(self, frame: DataFrame) -> str | float | None:
        """The share of validation rows, or the column that selects them."""
        validation: str | float | None = self._get("validation")
        if isinstance(validation, str):
            columns.names_of("validation", [validation], frame.columns)
        elif validation is not None and not 0 <= validation < 1:
            raise ValueError(f"validation={validation}: expected a share from 0 to below 1, or the name of a column")
        return validation or None

    def store(self) -> Store:
        """The store of data and checkpoints."""
        found = self._required("store")
        if isinstance(found, str):
            return Store(found)
        if not isinstance(found, Store):
            raise TypeError(f"store={found!r}: expected an elasticrun.spark.store.Store, or its directory")
        return found

    def _required(self, name: str) -> Any:
        value = self._get(name)
        if value is None:
            raise ValueError(f"{name}: missing: TorchEstimator needs it to fit")
        return value

    def pickled(self, objective: Objective) -> bytes:
        """The objects for the workers, in one pickle, so that the optimizer refers to the parameters of the model there."""
        model, optimizer = self._required("model"), self._required("optimizer")
        known = {id(parameter) for parameter in model.parameters()}
        if any(id(parameter) not in known for group in optimizer.param_groups for parameter in group["params"]):
            raise ValueError(
                "optimizer: is over parameters that are not of model: expected one made of model.parameters()"
            )
        parts = {
            "model": model,
            "optimizer": optimizer,
            "loss or metrics": objective,
            "gradient_compression": self._get("gradient_compression"),
        }
        for name, part in parts.items():
            try:
                cloudpickle.dumps(part)
            except Exception as error:
                raise TypeError(
                    f"{name}: cannot be pickled ({error}): leave out what cannot travel, such as locks, files and connections"
                ) from error
        return bytes(cloudpickle.dumps(tuple(parts.values())))

    def train_spec(self, pickled: bytes, begun: bytes | None, prepared: Prepared) -> TrainSpec:
        """The specification for the workers, with the weights of an earlier run if there are any."""
        shuffled, seed = self._get("shuffle_buffer_size"), self._get("random_seed")
        data: dict[str, Any] = {"shuffle": self._get("shuffle") and shuffled != 0, "seed": seed or 0}
        data |= given({"shuffle_rows": shuffled or None, "threads": self._get("train_reader_num_workers")})
        return TrainSpec(
            pickled=pickled,
            checkpoint=begun,
            train=prepared.train,
            validation=prepared.validation,
            batch_size=self._get("batch_size"),
            drop_last=self._get("drop_last"),
            validation_batch_size=self._get("val_batch_size") or self._get("batch_size"),
            epochs=self._get("epochs"),
            passes=self._get("backward_passes_per_step"),
            steps=self._get("train_steps_per_epoch"),
            validation_steps=self._get("validation_steps_per_epoch"),
            steps_per_commit=self._get("steps_per_commit"),
            checkpoint_every=self._get("checkpoint_every"),
            scale_rate=self._get("scale_lr"),
            data=data,
            seed=seed,
            use_gpu=self._get("use_gpu"),
            verbose=self._get("verbose") > 0,
        )
