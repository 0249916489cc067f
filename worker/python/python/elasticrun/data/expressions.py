"""Expressions and scalars of pyarrow as conditions of ``where``.

An expression has no public structure. Its pickled form is an Arrow file: the literals are columns, and the metadata of the schema
list the parts in the order of the calls. That metadata repeats keys, so it is read through the Arrow C data interface.

The result is made of ``(column, operator, value)``, ``{"and": [...]}``, ``{"or": [...]}`` and ``{"not": ...}``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from itertools import chain
from typing import Any

__all__ = ["condition", "is_expression", "plain"]

_COMPARISONS = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}

#: Of ``a < b`` as ``b > a``.
_FLIPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_LISTS = {"and_kleene": "and", "or_kleene": "or"}


class _Call:
    def __init__(self, function: str) -> None:
        self.function = function
        self.arguments: list[Any] = []
        self.options: dict[str, Any] = {}


class _Field(str):
    """The name of a column, or of a field of a structure with dots."""


class _Literal:
    def __init__(self, scalar: Any) -> None:
        self.scalar = scalar


def is_expression(given: Any) -> bool:
    """Whether it is an expression of pyarrow, which this does not import."""
    kind = type(given)
    return kind.__name__ == "Expression" and kind.__module__.startswith("pyarrow.")


def condition(expression: Any) -> Any:
    """The condition that is true for the same rows as an expression.

    Raises:
        ValueError: there is none. The message names the part of the expression.
    """
    import pyarrow as pa

    try:
        _, (buffer,) = expression.__reduce__()
    except pa.ArrowNotImplementedError as error:
        raise ValueError(f"where: {expression}: columns are given by their name") from error
    file = pa.ipc.open_file(buffer)
    literals = [column[0] for column in file.get_batch(0).columns]
    whole = _parse(iter(_metadata(file.schema)), literals)
    return _translated(whole)


def plain(scalar: Any) -> Any:
    """A scalar of pyarrow as a value of Python or, for times, of NumPy."""
    import numpy as np
    import pyarrow as pa

    kind = scalar.type
    if not scalar.is_valid:
        return None
    # Nanoseconds have no type in Python.
    if pa.types.is_timestamp(kind) and (kind.tz is None or kind.unit == "ns"):
        return np.datetime64(scalar.value, kind.unit)
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return np.timedelta64(scalar.value, kind.unit)
    return scalar.as_py()


def _metadata(schema: Any) -> list[tuple[str, str]]:
    """The metadata of a schema in their order."""

    class Schema(ctypes.Structure):
        _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))

    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsule = schema.__arrow_c_schema__()
    at = Schema.from_address(pointer(capsule, b"arrow_schema")).metadata or 0

    def number() -> int:
        nonlocal at
        found = ctypes.c_int32.from_address(at).value
        at += 4
        return found

    def text() -> str:
        nonlocal at
        length = number()
        found = ctypes.string_at(at, length).decode()
        at += length
        return found

    return [(text(), text()) for _ in range(number() if at else 0)]


def _parse(parts: Iterator[tuple[str, str]], literals: list[Any]) -> Any:
    """The next call, column or literal."""
    kind, value = next(parts)
    if kind == "literal":
        return _Literal(literals[int(value)])
    if kind == "field_ref":
        return _Field(value)
    if kind == "nested_field_ref":
        # The reader finds it by these names.
        return _Field(".".join(next(parts)[1] for _ in range(int(value))))
    if kind != "call":
        raise ValueError(
            f"where: this pyarrow writes {kind!r} into expressions, which is not known: use a list of conditions"
        )
    call = _Call(value)
    while (entry := next(parts)) != ("end", value):
        if entry[0] == "options":
            call.options = dict(literals[int(entry[1])].items())
        else:
            call.arguments.append(_parse(chain((entry,), parts), literals))
    return call


def _translated(part: Any) -> Any:
    if isinstance(part, _Field):
        return (str(part), "==", True)
    if isinstance(part, _Literal):
        value = plain(part.scalar)
        if not isinstance(value, bool):
            raise ValueError(f"where: {value!r} alone is no condition")
        return {"and": []} if value else {"or": []}
    function, arguments = part.function, part.arguments
    if function in _LISTS:
        return {_LISTS[function]: [_translated(one) for one in arguments]}
    if function == "invert":
        return {"not": _translated(arguments[0])}
    if function in _COMPARISONS:
        return _compared(_COMPARISONS[function], arguments)
    if function in ("is_valid", "is_null", "is_nan", "is_in"):
        column = arguments[0]
        if not isinstance(column, _Field):
            raise ValueError(f"where: {function} of {_named(column)}: conditions are on columns")
        return _asked(function, str(column), part.options)
    raise ValueError(f"where: the function {function!r} of pyarrow cannot be translated: use a transform")


def _compared(operator: str, arguments: list[Any]) -> Any:
    left, right = arguments
    if isinstance(left, _Literal) and isinstance(right, _Field):
        left, right, operator = right, left, _FLIPPED[operator]
    if not isinstance(left, _Field) or not isinstance(right, _Literal):
        raise ValueError(f"where: {_named(left)} {operator} {_named(right)}: conditions compare a column with a value")
    value = plain(right.scalar)
    if value is None:
        raise ValueError(f"where: {left} {operator} null is true for no row: use is_null() or is_valid()")
    return (str(left), operator, value)


def _asked(function: str, column: str, options: dict[str, Any]) -> Any:
    is_null = (column, "==", None)
    is_nan = {"not": (column, ">=", float("-inf"))}
    if function == "is_valid":
        return {"not": is_null}
    if function == "is_nan":
        return is_nan
    if function == "is_null":
        return {"or": [is_null, is_nan]} if options["nan_is_null"].as_py() else is_null
    matching = options["null_matching_behavior"].as_py()
    values = [plain(value) for value in options["value_set"].values]
    is_in = (column, "in", [value for value in values if value is not None])
    if any(value != value for value in values):
        raise ValueError(f"where: isin of {column} with NaN: use is_nan()")
    # As in pyarrow: null is like any other value, or is in no set, or makes the result unknown.
    if matching == 0 and None in values:
        return {"or": [is_null, is_in]}
    if matching in (0, 1):
        return {"and": [{"not": is_null}, is_in]}
    if matching == 2 and None not in values:
        return is_in
    raise ValueError(f"where: isin of {column} with null and null_matching_behavior={matching} cannot be translated")


def _named(part: Any) -> str:
    if isinstance(part, _Call):
        return f"{part.function}(...)"
    return str(part) if isinstance(part, _Field) else repr(plain(part.scalar))
