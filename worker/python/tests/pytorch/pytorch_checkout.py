"""The checkout of PyTorch that the caller gave, and its test modules.

Nothing of it is kept in this repository: `PYTORCH_SRC` names a directory that holds `test/distributed`.
"""

from __future__ import annotations

import importlib
import os
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

VARIABLE = "PYTORCH_SRC"

#: Where the tests of the rendezvous are.
RENDEZVOUS = "test/distributed/elastic/rendezvous"


def module(path: str) -> ModuleType:
    """A test module of the checkout, by its path. Skips all tests of the calling module without a checkout, or without the file."""
    given = os.environ.get(VARIABLE)
    if not given:
        pytest.skip(
            f"{VARIABLE} names no checkout of PyTorch: make test-torch-rdzv {VARIABLE}=DIR", allow_module_level=True
        )
    file = Path(given).resolve() / path
    if not file.exists():
        pytest.skip(f"{file} does not exist", allow_module_level=True)
    # Tests import each other by name, and workers import the functions that they run.
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    return importlib.import_module(file.stem)


def without(case: type[unittest.TestCase], names: Iterator[str] | list[str]) -> None:
    """Takes tests out of a class that inherits them."""
    for name in names:
        setattr(case, name, None)
