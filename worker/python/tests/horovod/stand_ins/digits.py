"""Handwritten digits, in place of data sets that Horovod's examples would download."""

from __future__ import annotations

import numpy as np

from elasticrun.examples.data import load


def split(train: bool) -> tuple[np.ndarray, np.ndarray]:
    """Digits to train with, or the others: images of 8 x 8 pixels of 0 to 255, and labels; uint8 both."""
    digits = load()[0 if train else 1]
    pixels = np.asarray([digit.pixels for digit in digits], np.float32)
    images = (pixels * 255).astype(np.uint8).reshape(-1, 8, 8)
    return images, np.asarray([digit.label for digit in digits], np.uint8)
