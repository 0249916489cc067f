"""Finds the program ``elasticrun``."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

__all__ = ["find"]


def find() -> Path:
    """``$ELASTICRUN_BIN``, else the program that was installed with this package, else the one on the PATH.

    Raises:
        FileNotFoundError: there is none.
    """
    named = os.environ.get("ELASTICRUN_BIN")
    if named:
        return Path(named)
    installed = Path(sysconfig.get_path("scripts"), "elasticrun")
    if installed.is_file():
        return installed
    found = shutil.which("elasticrun")
    if found is None:
        raise FileNotFoundError(
            "the program elasticrun is neither beside this Python nor on the PATH: pip install elasticrun, or set"
            " ELASTICRUN_BIN to it"
        )
    return Path(found)
