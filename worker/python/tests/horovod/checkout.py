"""The checkout of Horovod that the caller gave, and copies of its scripts for elasticrun.

Nothing of it is kept in this repository: `HOROVOD_SRC` names a directory that holds `horovod/`, `examples/elastic`
and `test/`, from any release between 0.20 and 0.28.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import sys
from pathlib import Path
from types import ModuleType

VARIABLE = "HOROVOD_SRC"

#: Where a checkout has the scenarios on Spark. The archive of a release has none.
ON_SPARK = "test/integration/elastic_spark_common.py"

#: Why a test is skipped without a checkout.
REASON = f"{VARIABLE} names no checkout of Horovod: make test-horovod {VARIABLE}=DIR"

_IMPORT = re.compile(r"^import horovod\.([\w.]+) as hvd$", re.MULTILINE)


def source() -> Path | None:
    """The checkout, or None if none was given."""
    given = os.environ.get(VARIABLE)
    return Path(given).resolve() if given else None


def moved(script: Path, to: Path) -> Path:
    """A copy of `script` in the directory `to`, with one line changed: the import of Horovod.

    Raises:
        ValueError: it imports Horovod in another way, or not at all.
    """
    text = script.read_text()
    imports = _IMPORT.findall(text)
    if len(imports) != 1:
        raise ValueError(f"{script} has {len(imports)} lines `import horovod.* as hvd`, not one")
    copy = to / script.name
    copy.write_text(_IMPORT.sub(r"import elasticrun.\1 as hvd", text))
    return copy


def with_fractions(script: Path) -> Path:
    """Has a training script take parts of a second for `--epoch-wait`, as its scenarios give them.

    Some revisions of Horovod have scenarios that are newer than their scripts, which take whole seconds.
    """
    text = script.read_text()
    script.write_text(text.replace("'--epoch-wait', type=int", "'--epoch-wait', type=float"))
    return script


def scenarios() -> list[str]:
    """The names of Horovod's elastic integration scenarios, in the order of their file."""
    root = source()
    if root is None:
        return []
    tree = ast.parse((root / "test/integration/elastic_common.py").read_text())
    return [
        item.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "BaseElasticTests"
        for item in node.body
        if isinstance(item, ast.FunctionDef) and item.name.startswith("test_")
    ]


def has_spark_scenarios() -> bool:
    """Whether the checkout has scenarios on Spark."""
    root = source()
    return root is not None and (root / ON_SPARK).exists()


def elastic_common() -> ModuleType:
    """Horovod's module of scenarios, imported with the modules of Horovod that it needs."""
    return _imported("elastic_common")


def scenarios_on_spark() -> ModuleType:
    """Horovod's module of scenarios on Spark, likewise."""
    return _imported("elastic_spark_common")


def _imported(name: str) -> ModuleType:
    root = source()
    assert root is not None, "a test that needs it is skipped without"
    # test/utils is where newer releases keep what test/ held before.
    for path in (root, root / "test", root / "test/utils", root / "test/integration"):
        if str(path) not in sys.path:
            sys.path.append(str(path))
    return importlib.import_module(name)
