"""Writes a data frame for training, with separate directories of training and validation rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import store
from . import columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Prepared", "prepare"]

#: The column that separates training and validation rows. It is the beginning of the directories' names.
_PART = "elasticrun_part"


@dataclass(frozen=True)
class Prepared:
    """Parquet files that Spark wrote.

    Attributes:
        path: directory of the files, as Spark names it.
        validates: whether there are validation rows.
        widths: number of values in a row of each column; None for single values.
    """

    path: str
    validates: bool
    widths: dict[str, int | None]

    @property
    def train(self) -> str:
        """Directory of the training rows, as workers name it."""
        return store.for_reader(f"{self.path}/{_PART}=train")

    @property
    def validation(self) -> str | None:
        """Directory of the validation rows, as workers name it; None without such rows."""
        return store.for_reader(f"{self.path}/{_PART}=validation") if self.validates else None


def prepare(
    frame: DataFrame,
    path: str,
    names: Sequence[str],
    validation: str | float | None,
    seed: int,
    row_group_bytes: int,
) -> Prepared:
    """Writes columns of a data frame. Warns of NaN.

    Args:
        frame: the rows. They are evaluated once.
        path: directory of the files, as Spark names it. It must not exist.
        names: names of the columns, whose types were checked.
        validation: share of validation rows, or a column that selects them.
        seed: seed of the random selection of a share.
        row_group_bytes: see :func:`elasticrun.spark.dataset`.

    Raises:
        ValueError: there are no training rows, or a row lacks a value or has another number of values.
    """
    session = frame.sparkSession
    chosen = [columns.written(frame, name) for name in names]
    part = _part(validation, seed).alias(_PART)
    whole = frame.select(*chosen, part).write.partitionBy(_PART)
    whole.option("parquet.block.size", str(row_group_bytes)).parquet(path)
    # Without rows there are no files, from which Spark would infer the schema.
    read = session.read.schema(frame.select(*chosen, part).schema).parquet(path)
    found = columns.shapes(read, names)
    trained = read.where(read[_PART] == "train").count() if validation is not None else found.rows
    if found.rows == 0:
        raise ValueError("the data frame has no rows: expected at least one")
    if trained == 0:
        raise ValueError(f"validation={validation!r}: takes all {found.rows} row(s): expected some to train on")
    for name, count in found.nans.items():
        warnings.warn(
            f"column {name!r} has NaN in {count} row(s), which make the loss NaN in most models: drop or fill them before fit",
            stacklevel=2,
        )
    return Prepared(path, trained < found.rows, found.widths)


def _part(validation: str | float | None, seed: int) -> Column:
    from pyspark.sql import functions as f

    if validation is None:
        return f.lit("train")
    if isinstance(validation, str):
        chosen = f.col(f"`{validation}`").cast("boolean")
    else:
        chosen = f.rand(seed) < validation
    # Rows without a value in the column are training rows.
    return f.when(chosen, "validation").otherwise("train")
