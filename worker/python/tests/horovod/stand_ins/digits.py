"""Handwritten digits, in place of data sets that Horovod's examples would download."""

from __future__ import annotations

import os

import numpy as np

#: Where the digits are: `examples/digits/data/digits.parquet` of this repository.
VARIABLE = "ELASTICRUN_TEST_DIGITS"


def load() -> tuple[np.ndarray, np.ndarray]:
    """All 1,797 digits: images of 8 x 8 pixels of 0 to 255, and labels; uint8 both."""
    from pyarrow import parquet

    table = parquet.read_table(os.environ[VARIABLE])
    pixels = b"".join(table.column("image").to_pylist())
    images = np.frombuffer(pixels, np.uint8).reshape(-1, 8, 8)
    labels = np.asarray(table.column("label").to_pylist(), np.uint8)
    return (images.astype(np.uint16) * 255 // 16).astype(np.uint8), labels


def split(train: bool) -> tuple[np.ndarray, np.ndarray]:
    """Those to train with, 1,500, or the 297 others."""
    images, labels = load()
    part = slice(0, 1500) if train else slice(1500, None)
    return images[part], labels[part]
