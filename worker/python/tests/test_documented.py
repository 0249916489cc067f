"""Every public name stands in docs/python.md, in the section of its module."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[3] / "docs/python.md"

#: Each module, and the heading of the section that lists its names.
SECTIONS = {
    "elasticrun": "elasticrun",
    "elasticrun.accelerate": "elasticrun.accelerate",
    "elasticrun.data": "elasticrun.data",
    "elasticrun.elastic": "elasticrun.elastic",
    "elasticrun.errors": "elasticrun.errors",
    "elasticrun.keras": "elasticrun.tensorflow.keras",
    "elasticrun.keras.callbacks": "elasticrun.tensorflow.keras.callbacks",
    "elasticrun.keras.elastic": "elasticrun.tensorflow.keras.elastic",
    "elasticrun.lightning": "elasticrun.lightning",
    "elasticrun.notifications": "elasticrun.notifications",
    "elasticrun.ps": "elasticrun.ps",
    "elasticrun.spark": "elasticrun.spark",
    "elasticrun.spark.store": "elasticrun.spark.store",
    "elasticrun.spark.torch": "elasticrun.spark.torch",
    "elasticrun.tensorflow": "elasticrun.tensorflow",
    "elasticrun.tensorflow.elastic": "elasticrun.tensorflow.elastic",
    "elasticrun.tensorflow.keras": "elasticrun.tensorflow.keras",
    "elasticrun.tensorflow.keras.callbacks": "elasticrun.tensorflow.keras.callbacks",
    "elasticrun.tensorflow.keras.elastic": "elasticrun.tensorflow.keras.elastic",
    "elasticrun.torch": "elasticrun.torch",
    "elasticrun.torch.elastic": "elasticrun.torch.elastic",
    "elasticrun.torch.launch": "elasticrun.torch.launch",
    "elasticrun.torch.rendezvous": "elasticrun.torch.rendezvous",
    "elasticrun.transformers": "elasticrun.transformers",
}


def exported(module: str) -> list[str]:
    """`__all__` of a module, read without importing the framework that it needs."""
    package = importlib.util.find_spec("elasticrun")
    assert package is not None and package.origin is not None
    place = Path(package.origin).parent.joinpath(*module.split(".")[1:])
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    names: list[str] = []
    whence = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            whence |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names += ast.literal_eval(node.value)
        elif isinstance(node, ast.AugAssign) and ast.unparse(node.target) == "__all__":
            # `__all__ += other.__all__`
            names += exported(whence[ast.unparse(node.value).removesuffix(".__all__")])
    assert names, f"{module} has no __all__"
    return names


def listed(heading: str) -> set[str]:
    """Names in code quotes at the left of the tables of a section, those of its subsections aside."""
    sections = re.split(r"^#{2,3} (.+)$", DOCUMENT.read_text(), flags=re.MULTILINE)
    body = dict(zip(sections[1::2], sections[2::2], strict=True))[heading]
    cells = re.findall(r"^\| (`.+?) \|", body, flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)", cell)}


@pytest.mark.parametrize("module", SECTIONS)
def test_every_public_name_is_documented(module: str) -> None:
    missing = sorted(set(exported(module)) - listed(SECTIONS[module]))
    assert not missing, f"{module}: not in its section of {DOCUMENT.name}: {missing}"


@pytest.mark.parametrize("heading", sorted(set(SECTIONS.values())))
def test_nothing_else_is_documented(heading: str) -> None:
    methods = {"commit", "check_host_updates", "set_check_hosts_added_delay", "register_reset_callbacks"}
    methods |= {"save", "restore", "sync", "reset", "on_reset", "on_hosts_updated"}
    known = {name for module, title in SECTIONS.items() if title == heading for name in exported(module)}
    unknown = sorted(listed(heading) - known - (methods if heading == "elasticrun.elastic" else set()))
    assert not unknown, f"in the section {heading}, but no public name: {unknown}"
