"""Data sets for tests, written by pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write(
    directory: Path,
    rows: int = 1000,
    files: int = 3,
    group: int = 60,
    width: int = 4,
    more: Callable[[list[int]], dict[str, Any]] = lambda index: {},
) -> Path:
    """``rows`` rows in some files, in row groups of ``group`` rows and less: ``index`` counts through, ``x`` holds
    ``width`` times the index. ``more`` gives further columns of these indices."""
    directory.mkdir(parents=True, exist_ok=True)
    bounds = np.linspace(0, rows, files + 1, dtype=int)
    for number in range(files):
        index = np.arange(bounds[number], bounds[number + 1])
        values = np.repeat(index.astype(np.float32), width)
        table = pa.table(
            {
                "index": pa.array(index),
                "x": pa.FixedSizeListArray.from_arrays(pa.array(values), width),
                "name": pa.array([f"row {row}" for row in index]),
                **more(index.tolist()),
            }
        )
        pq.write_table(table, directory / f"part-{number}.parquet", row_group_size=group)
    return directory
