"""Handwritten digits; README.md beside this file names their source and licence."""

from __future__ import annotations

import csv
import random
from importlib import resources
from typing import NamedTuple

__all__ = ["CLASSES", "PIXELS", "Digit", "load"]

PIXELS = 64
CLASSES = 10

_BLACK = 16
#: One of this many images is kept for the test.
_TEST_SHARE = 5
_SEED = 1998


class Digit(NamedTuple):
    """An image: 64 pixels from 0.0 (white) to 1.0 (black), row by row, and the digit that it shows."""

    pixels: tuple[float, ...]
    label: int


def load() -> tuple[list[Digit], list[Digit]]:
    """1,438 digits to train with and 359 to test with, the same in all workers."""
    file = resources.files(__package__).joinpath("digits.csv")
    with file.open(encoding="ascii") as lines:
        rows = [[int(word) for word in row] for row in csv.reader(lines)]
    digits = [Digit(tuple(pixel / _BLACK for pixel in row[:-1]), row[-1]) for row in rows]
    random.Random(_SEED).shuffle(digits)
    tests = len(digits) // _TEST_SHARE
    return digits[tests:], digits[:tests]
