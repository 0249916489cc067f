"""Reads a data set with petastorm, in petastorm's environment, and prints the requested values as a line of JSON.

Usage: read.py URL [NAME=NUMBER ...]

The names are arguments of ``make_batch_reader``. Prints ``{"index": [...]}``, or ``{"error": NAME}`` if it raises.
``reset=1`` resets the reader behind the first rows.
"""

from __future__ import annotations

import json
import os
import sys
import warnings

warnings.simplefilter("ignore")

from petastorm import make_batch_reader


def read(url: str, reset: int = 0, **options: int) -> list[int]:
    # In this process and one row group after the other, so that the order does not depend on timing.
    with make_batch_reader(url, num_epochs=1, reader_pool_type="dummy", **options) as reader:
        if reset:
            next(reader)
            reader.reset()
        return [int(index) for rows in reader for index in rows.index]


try:
    url, *words = sys.argv[1:]
    said: dict[str, object] = {
        "index": read(url, **{name: int(value) for name, value in (word.split("=") for word in words)})
    }
except Exception as error:
    said = {"error": type(error).__name__}
print(json.dumps(said), flush=True)
# Threads of its libraries may abort an interpreter that exits normally. The output is complete by now.
os._exit(0)
