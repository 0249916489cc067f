"""Writes a data frame for training: a directory for the rows to train on, and one for those to validate with."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import store
from . import columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Prepared", "prepare"]

#: The column that tells rows apart, and so the beginning of the directories' names.
_PART = "elasticrun_part"


@dataclass(frozen=True)
class Prepared:
    """Parquet files that Spark wrote.

    Attributes:
        path: their directory, as Spark names it.
        validates: whether there are rows to validate with.
        widths: values in each row of a column; None for single values.
    """

    path: str
    validates: bool
    widths: dict[str, int | None]

    @property
    def train(self) -> str:
        """The rows to train on, as workers name them."""
        return store.for_reader(f"{self.path}/{_PART}=train")

    @property
    def validation(self) -> str | None:
        """The rows to validate with, as workers name them; None if there are none."""
        return store.for_reader(f"{self.path}/{_PART}=validation") if self.validates else None


def prepare(
    frame: DataFrame,
    to: store.Store,
    names: Sequence[str],
    validation: str | float | None,
    seed: int,
    row_group_bytes: int,
) -> Prepared:
    """Writes columns of a data frame. What was written is deleted if something is wrong with it.

    Args:
        frame: the rows; it is gone through once.
        to: where.
        names: of the columns; their types are checked already.
        validation: the share of rows to validate with, or a column that says which.
        seed: of the choice by a share.
        row_group_bytes: as of :func:`elasticrun.spark.dataset`.

    Raises:
        ValueError: there are no rows to train on, or rows without a value or of another length.
    """
    session = frame.sparkSession
    path = to.path("data", uuid.uuid4().hex)
    chosen = [columns.written(frame, name) for name in names]
    part = _part(validation, seed).alias(_PART)
    try:
        whole = frame.select(*chosen, part).write.partitionBy(_PART)
        whole.option("parquet.block.size", str(row_group_bytes)).parquet(path)
        # Without rows there are no files, and so no schema.
        read = session.read.schema(frame.select(*chosen, part).schema).parquet(path)
        found = columns.shapes(read, names)
        trained = read.where(read[_PART] == "train").count() if validation is not None else found.rows
        if found.rows == 0:
            raise ValueError("the data frame has no rows: expected at least one")
        if trained == 0:
            raise ValueError(f"validation={validation!r}: takes all {found.rows} row(s): expected some to train on")
    except BaseException:
        store.delete(session, path)
        raise
    return Prepared(path, trained < found.rows, found.widths)


def _part(validation: str | float | None, seed: int) -> Column:
    from pyspark.sql import functions as f

    if validation is None:
        return f.lit("train")
    if isinstance(validation, str):
        chosen = f.col(f"`{validation}`").cast("boolean")
    else:
        chosen = f.rand(seed) < validation
    # Rows of which the column says nothing are trained on.
    return f.when(chosen, "validation").otherwise("train")
