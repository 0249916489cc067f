"""The package of Lightning that the script uses: ``lightning``, or ``pytorch_lightning``, which is the same code twice."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any


def package() -> str:
    """``lightning.pytorch`` or ``pytorch_lightning``: the one that is imported, else the one that is installed."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if sys.modules.get(name) is not None:
            return name
    if importlib.util.find_spec("lightning") is None and importlib.util.find_spec("pytorch_lightning") is not None:
        return "pytorch_lightning"
    return "lightning.pytorch"


def module(name: str) -> Any:
    """A module of that package, such as ``trainer``."""
    return importlib.import_module(f"{package()}.{name}")


def fabric(name: str) -> Any:
    """A module of Lightning Fabric, on which the package is built."""
    root = "lightning.fabric" if package() == "lightning.pytorch" else "lightning_fabric"
    return importlib.import_module(f"{root}.{name}")
