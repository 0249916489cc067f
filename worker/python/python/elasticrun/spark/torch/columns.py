"""Columns of a data frame that become tensors: supported types, and their conversion for workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["EXPECTED", "check", "names_of", "shapes", "written"]

#: Description of supported columns, for errors.
EXPECTED = "expected numbers, truth values, arrays of numbers, or vectors"


def names_of(keyword: str, given: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Checks names of columns.

    Raises:
        ValueError: no name is given, or a column does not exist.
    """
    if not given or isinstance(given, str):
        raise ValueError(f"{keyword}={given!r}: expected a list of names of columns")
    for name in given:
        if name not in known:
            raise ValueError(f"{keyword}: there is no column {name!r}; there are: {', '.join(known)}")
    return list(given)


def check(frame: DataFrame, names: Sequence[str]) -> None:
    """Checks the types of columns.

    Raises:
        TypeError: the type of a column is not supported.
    """
    for name in names:
        kind = frame.schema[name].dataType
        if _form(kind) is None:
            raise TypeError(f"column {name!r} of type {kind.simpleString()} can be no tensor: {EXPECTED}")


def written(frame: DataFrame, name: str) -> Column:
    """The column as it is written: numbers, or arrays of numbers."""
    from pyspark.sql import Column, functions

    column = functions.col(f"`{name}`")
    form = _form(frame.schema[name].dataType)
    if form == "vector":
        # Pyspark's own function for this needs pandas.
        jvm = frame.sparkSession._jvm
        column = Column(jvm.org.apache.spark.ml.functions.vector_to_array(column._jc, "float64"))
    elif form == "decimal":
        column = column.cast("double")
    elif form == "array of decimals":
        column = column.cast("array<double>")
    return column.alias(name)


def shapes(frame: DataFrame, names: Sequence[str]) -> Shapes:
    """Counts the rows, the values in a row of each column, and rows with NaN.

    Args:
        frame: the frame as written.
        names: names of the columns.

    Raises:
        ValueError: a row lacks a value, or rows of a column have different numbers of values.
    """
    from pyspark.sql import functions as f

    wanted: list[Any] = [f.count(f.lit(1)).alias("rows")]
    arrays = [name for name in names if frame.schema[name].dataType.typeName() == "array"]
    for place, name in enumerate(names):
        column = f.col(f"`{name}`")
        missing = (
            column.isNull() | f.exists(column, lambda value: value.isNull()) if name in arrays else column.isNull()
        )
        wanted.append(f.sum(missing.cast("long")).alias(f"missing{place}"))
        if _is_floating(frame.schema[name].dataType):
            is_nan = f.exists(column, lambda value: f.isnan(value)) if name in arrays else f.isnan(column)
            wanted.append(f.sum(is_nan.cast("long")).alias(f"nan{place}"))
        if name in arrays:
            wanted += [f.min(f.size(column)).alias(f"least{place}"), f.max(f.size(column)).alias(f"most{place}")]
    found = frame.agg(*wanted).first()
    assert found is not None, "an aggregate has one row"
    widths: dict[str, int | None] = dict.fromkeys(names)
    nans: dict[str, int] = {}
    for place, name in enumerate(names):
        if found[f"missing{place}"]:
            raise ValueError(
                f"column {name!r} has {found[f'missing{place}']} row(s) without a value: expected one in each"
            )
        if name in arrays and found["rows"]:
            least, most = found[f"least{place}"], found[f"most{place}"]
            if least != most:
                raise ValueError(
                    f"column {name!r} has from {least} to {most} values in a row: expected as many in each"
                )
            widths[name] = most
        if _is_floating(frame.schema[name].dataType) and found[f"nan{place}"]:
            nans[name] = found[f"nan{place}"]
    return Shapes(found["rows"], widths, nans)


@dataclass(frozen=True)
class Shapes:
    """Shapes of the columns of a data frame.

    Attributes:
        rows: number of rows.
        widths: number of values in a row of each column; None for single values.
        nans: number of rows with NaN of each column that has some.
    """

    rows: int
    widths: dict[str, int | None]
    nans: dict[str, int]


def _form(kind: Any) -> str | None:
    """The form in which a column of a type is written; None if the type is not supported."""
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql.types import ArrayType

    if isinstance(kind, VectorUDT):
        return "vector"
    if isinstance(kind, ArrayType):
        inner = _number(kind.elementType)
        return "array of decimals" if inner == "decimal" else inner
    return _number(kind)


def _number(kind: Any) -> str | None:
    """The form in which single values of a type are written; None if they are not numbers."""
    from pyspark.sql.types import BooleanType, DecimalType, NumericType

    if isinstance(kind, DecimalType):
        return "decimal"
    return "plain" if isinstance(kind, (NumericType, BooleanType)) else None


def _is_floating(kind: Any) -> bool:
    """Whether values of a type, or of its elements, can be NaN."""
    from pyspark.sql.types import ArrayType, FractionalType

    inner = kind.elementType if isinstance(kind, ArrayType) else kind
    # Decimals are written as doubles.
    return isinstance(inner, FractionalType)
