"""The rows of the data sets that write.py writes, in NumPy alone: what a reader has to give."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np


def row(number: int, size: int) -> dict[str, Any]:
    """Row `number`: the same in each run."""
    random = np.random.default_rng(number)
    slope = np.add.outer(np.arange(size), np.arange(size + 2)) * (200 // (2 * size)) + number % 40
    return {
        "id": np.int64(number),
        "part": f"p{number % 2}",
        "small": np.uint8(number % 256),
        "half": np.float32(number / 2),
        "flag": np.bool_(number % 3 == 0),
        "kind": f"kind {number * 4 % 3}",
        "maybe": None if number % 4 == 1 else np.int32(-number),
        "label": f"label {number}" if number < 6 else None,
        "price": Decimal(number) / Decimal(8),
        "day": datetime.date(2026, 1, 1) + datetime.timedelta(days=number),
        "matrix": random.standard_normal((3, 4), dtype=np.float32),
        "ragged": np.arange(number % 5, dtype=np.int16),
        "perhaps": None if number % 3 == 0 else np.array([number, 0.5]),
        "packed": np.full((2, 1 + number % 3), number, np.int64),
        "rgb": random.integers(0, 256, (size, size, 3), dtype=np.uint8),
        "deep": random.integers(0, 1 << 16, (size, size + 1), dtype=np.uint16),
        "photo": np.stack([slope, 255 - slope, slope // 2], axis=-1).astype(np.uint8),
        "shade": slope.astype(np.uint8),
    }
