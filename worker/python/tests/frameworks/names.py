"""Names of checks, without importing the module that holds them."""

from __future__ import annotations

import ast
from pathlib import Path

__all__ = ["checks_of"]


def checks_of(module: str) -> list[str]:
    """Names of the checks in a module of ``checks/``, in order."""
    tree = ast.parse((Path(__file__).parent / "checks" / f"{module}.py").read_text())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
    ]
