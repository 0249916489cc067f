"""The values of metrics in the logs of Keras."""

from __future__ import annotations

from typing import Any

import numpy

__all__ = ["as_floats"]


def as_floats(value: object) -> numpy.ndarray[Any, numpy.dtype[numpy.float64]] | None:
    """A metric as 64-bit floats, of shape () for a number. None if it is neither a number nor an array of numbers."""
    # NumPy makes NaN of None, and parses strings.
    if value is None or isinstance(value, (str, bytes)):
        return None
    try:
        return numpy.asarray(value, numpy.float64)
    except (TypeError, ValueError):
        return None
