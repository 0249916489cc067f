"""Columns as arrays of NumPy, by their types. Where a type leaves a choice, a form of the user decides."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..errors import DataError
from .forms import Fill, Form, Image, Pack, Pad

if TYPE_CHECKING:
    import numpy as np

    from .. import _native

    Array = np.ndarray[Any, Any]

__all__ = ["NullError", "formed", "mask_of", "plain"]


class NullError(TypeError):
    """A column has nulls, and its type has no value for them."""

    def __init__(self, name: str, dtype: object) -> None:
        super().__init__(
            f"column {name!r} has nulls, and {dtype} has no value for them: choose one by forms={{{name!r}: Fill(...)}}, leave the"
            " column out by columns=, or take it from arrow()"
        )


def plain(
    name: str, parts: _native.Parts, objects: bool = False, decimals: type[Decimal] | type[float] = Decimal
) -> Any:
    """A column without a form: an array, or a dictionary of arrays for a structure.

    Args:
        name: for errors.
        parts: the memory of the column.
        objects: whether integers and booleans with nulls become objects, with None for null. Else they are an error.
        decimals: the type of decimal numbers. Floats have NaN for null.

    Raises:
        NullError: integers or booleans with nulls.
    """
    import numpy as np

    match parts.form:
        case "numbers":
            return _numbers(name, parts, objects)
        case "decimals" if decimals is float:
            return np.array([np.nan if text is None else float(text) for text in parts.objects()], dtype=np.float64)
        case "decimals":
            return _objects([None if text is None else Decimal(text) for text in parts.objects()])
        case "text" | "bytes":
            return _objects(parts.objects())
        case "struct":
            return {field: plain(f"{name}.{field}", child, objects, decimals) for field, child in parts.fields()}
        case "nothing":
            return np.full(len(parts), None, dtype=object)
        case "fixed":
            return _fixed(name, parts, objects, decimals)
        case _:
            return _rows_of(parts, plain(name, _child(parts), objects, decimals))


def formed(
    name: str, parts: _native.Parts, form: Form, threads: int, count_undecoded: Callable[[int], None]
) -> dict[str, Array]:
    """A column in a form, and the further columns that the form adds, by name.

    Args:
        threads: number of threads that decode images.
        count_undecoded: is told how many could not be decoded.

    Raises:
        DataError: a row does not fit into the form.
        TypeError: the form is for columns of other types.
    """
    if isinstance(form, Fill):
        mask = mask_of(parts)
        filled = _filled(name, parts, form.value)
        return {name: filled} | ({} if form.mask is None else {form.mask: mask})
    if isinstance(form, Pad):
        padded, mask = _padded(name, parts, form)
        return {name: padded} | ({} if form.mask is None else {form.mask: mask})
    if isinstance(form, Image):
        pixels, mask, failed = _images(name, parts, form, threads)
        count_undecoded(failed)
        return {name: pixels} | ({} if form.mask is None else {form.mask: mask})
    if isinstance(form, Pack):
        values, offsets = packed(name, parts)
        return {name: values, form.offsets or f"{name}.offsets": offsets}
    return {name: plain(name, parts)}


def mask_of(parts: _native.Parts) -> Array:
    """Whether each row has a value: bool of shape (rows)."""
    import numpy as np

    valid = parts.valid()
    return np.ones(len(parts), dtype=bool) if valid is None else np.asarray(valid)


def packed(name: str, parts: _native.Parts) -> tuple[Array, Array]:
    """The values of all rows, and int64 offsets of shape (rows + 1)."""
    import numpy as np

    if parts.form in ("bytes", "text"):
        return np.asarray(parts.values()), np.asarray(parts.offsets())
    child = parts.child()
    if child is None:
        raise TypeError(f"forms[{name!r}]: only lists and byte strings can be packed")
    values = plain(name, child)
    if isinstance(values, dict):
        raise TypeError(f"forms[{name!r}]: lists of structures cannot be packed")
    return values, _offsets(parts)


def _numbers(name: str, parts: _native.Parts, objects: bool) -> Array:
    import numpy as np

    values: Array = np.asarray(parts.values())
    valid = parts.valid()
    if valid is None:
        return values
    mask = np.asarray(valid)
    if values.dtype.kind in "fMm":
        values = values.copy()
        values[~mask] = np.nan if values.dtype.kind == "f" else np.array("NaT", dtype=values.dtype)
        return values
    if objects:
        return _objects([value if has else None for value, has in zip(values.tolist(), mask.tolist(), strict=True)])
    raise NullError(name, values.dtype)


def _filled(name: str, parts: _native.Parts, value: Any) -> Array:
    import numpy as np

    if parts.form in ("text", "bytes", "decimals"):
        objects: Array = plain(name, parts)
        objects[~mask_of(parts)] = value
        return objects
    rows, numbers = parts, parts
    if parts.form == "fixed":
        numbers = _child(parts)
    if numbers.form != "numbers":
        raise TypeError(f"forms[{name!r}]: Fill is for numbers, strings and binary values; Pad has a value for lists")
    values: Array = np.array(numbers.values())
    scalar = _scalar(name, values.dtype, value)
    if (valid := numbers.valid()) is not None:
        values[~np.asarray(valid)] = scalar
    if numbers is not rows:
        values = values.reshape(len(rows), -1)
        values[~mask_of(rows)] = scalar
    return values


def _padded(name: str, parts: _native.Parts, form: Pad) -> tuple[Array, Array]:
    import numpy as np

    numbers: _native.Parts | None = parts.child()
    if numbers is not None and numbers.form == "fixed":
        numbers = numbers.child()
    if numbers is None or numbers.form != "numbers":
        raise TypeError(f"forms[{name!r}]: only lists of numbers, and of fixed-size lists of numbers, can be padded")
    dtype = np.asarray(numbers.values()).dtype
    value = _scalar(name, dtype, form.value).tobytes()
    try:
        values, mask = parts.pad(
            value,
            length=form.length,
            multiple_of=form.multiple_of,
            truncate=form.truncate,
            left=form.side == "left",
        )
    except ValueError as error:
        raise DataError(f"column {name!r}: {error}: Pad(length=..., truncate=True) cuts rows") from error
    return np.asarray(values), np.asarray(mask)


def _images(name: str, parts: _native.Parts, form: Image, threads: int) -> tuple[Array, Array, int]:
    import numpy as np

    encoded = dict(parts.fields()).get("bytes", parts)
    if encoded.form != "bytes":
        raise TypeError(f"forms[{name!r}]: an Image is of a binary column, or of a structure with a field 'bytes'")
    height, width = form.size
    try:
        pixels, mask, failed = encoded.images(
            height=height,
            width=width,
            gray=form.mode == "L",
            crop=form.crop,
            threads=threads,
            black=form.on_error == "black",
        )
    except DataError as error:
        raise DataError(f"column {name!r}: {error}: Image(on_error='black') goes on") from error
    return np.asarray(pixels), np.asarray(mask), failed


def _scalar(name: str, dtype: np.dtype[Any], value: Any) -> Any:
    """A value in the type of a column."""
    import numpy as np

    try:
        scalar = np.array(value, dtype=dtype)
        is_value = scalar.ndim == 0 and (dtype.kind not in "iub" or bool(scalar == value))
    except (TypeError, ValueError, OverflowError):
        is_value = False
    if not is_value:
        raise ValueError(f"forms[{name!r}]: {value!r} is no value of the column's type, {dtype}")
    return scalar


def _fixed(name: str, parts: _native.Parts, objects: bool, decimals: type[Decimal] | type[float]) -> Array:
    """Fixed-size lists and binary values: (rows, size, ...) for numbers, else an array of arrays."""
    import numpy as np

    values = plain(name, _child(parts), objects, decimals)
    if isinstance(values, dict):
        return _rows_of(parts, values)
    shaped: Array = values.reshape(len(parts), parts.width() or 0, *values.shape[1:])
    if (valid := parts.valid()) is None:
        return shaped
    mask = np.asarray(valid)
    if shaped.dtype.kind == "f":
        shaped = shaped.copy()
        shaped[~mask] = np.nan
        return shaped
    if shaped.dtype.kind in "iub" and not objects:
        raise NullError(name, f"{shaped.dtype} of shape ({shaped.shape[1]})")
    return _objects([row if has else None for row, has in zip(shaped, mask.tolist(), strict=True)])


def _rows_of(parts: _native.Parts, values: Any) -> Array:
    """The values of each row, over the same memory; None for null."""
    bounds = _offsets(parts).tolist()
    rows: list[Any] = []
    for row, has in enumerate(mask_of(parts).tolist()):
        slot = slice(bounds[row], bounds[row + 1])
        if not has:
            rows.append(None)
        elif isinstance(values, dict):
            rows.append({field: column[slot] for field, column in values.items()})
        else:
            rows.append(values[slot])
    return _objects(rows)


def _offsets(parts: _native.Parts) -> Array:
    import numpy as np

    offsets = parts.offsets()
    if offsets is not None:
        return np.asarray(offsets)
    return np.arange(len(parts) + 1, dtype=np.int64) * (parts.width() or 0)


def _child(parts: _native.Parts) -> _native.Parts:
    child = parts.child()
    assert child is not None
    return child


def _objects(values: list[Any]) -> Array:
    import numpy as np

    # Not np.array(values), which looks into arrays.
    array: Array = np.fromiter(values, dtype=object, count=len(values))
    return array
