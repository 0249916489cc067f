"""Dates and times in the unit of a column, for conditions."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

__all__ = ["in_unit"]

_EPOCH = dt.datetime(1970, 1, 1)
_UTC_EPOCH = _EPOCH.replace(tzinfo=dt.timezone.utc)
_NANOSECONDS = {"W": 604_800 * 10**9, "D": 86_400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6,
                "us": 1000, "ns": 1}  # fmt: skip


def in_unit(value: Any, kind: str, unit: int) -> int | float:
    """A date or time as the number of units of a column. It is a float between two units.

    Args:
        value: a date, datetime, time or timedelta, or the scalar of NumPy. Those of NumPy are in UTC for a column with a time zone.
        kind: "date", "timestamp", "timestamp with a time zone", "time" or "duration".
        unit: nanoseconds of a unit.

    Raises:
        TypeError: a column of this kind has no such values.
    """
    nanoseconds = _nanoseconds(value, kind)
    if nanoseconds is None:
        raise TypeError(f"where: {value!r} cannot be compared with a column of type {kind}")
    whole, rest = divmod(nanoseconds, unit)
    if rest == 0:
        return whole
    # Only the order counts. A float near a whole number must not be rounded to it.
    between = whole + rest / unit
    return min(max(between, math.nextafter(whole, math.inf)), math.nextafter(whole + 1, -math.inf))


def _nanoseconds(value: Any, kind: str) -> int | None:
    has_zone = kind == "timestamp with a time zone"
    is_instant = kind in ("date", "timestamp") or has_zone
    if hasattr(value, "dtype"):
        return _of_numpy(value, is_instant)
    # A datetime is a date.
    if isinstance(value, dt.datetime):
        if not is_instant or (value.tzinfo is not None) != has_zone:
            return None
        return _of_timedelta(value - (_UTC_EPOCH if has_zone else _EPOCH))
    if isinstance(value, dt.date):
        return _of_timedelta(dt.datetime.combine(value, dt.time()) - _EPOCH) if is_instant else None
    if isinstance(value, dt.time) and kind == "time" and value.tzinfo is None:
        return _of_timedelta(dt.datetime.combine(_EPOCH, value) - _EPOCH)
    if isinstance(value, dt.timedelta) and kind in ("duration", "time"):
        return _of_timedelta(value)
    return None


def _of_timedelta(value: dt.timedelta) -> int:
    return ((value.days * 86_400 + value.seconds) * 10**6 + value.microseconds) * 1000


def _of_numpy(value: Any, is_instant: bool) -> int | None:
    import numpy as np

    if value.dtype.kind != ("M" if is_instant else "m") or np.isnat(value):
        return None
    unit, count = np.datetime_data(value.dtype)
    if unit in ("Y", "M"):
        if not is_instant:
            return None
        value, unit, count = value.astype("datetime64[D]"), "D", 1
    nanoseconds = _NANOSECONDS.get(unit)
    return None if nanoseconds is None else int(value.view("int64")) * count * nanoseconds
