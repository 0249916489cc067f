"""Names and options of Horovod are known here: of its command line, of its modules, of its `run` function.

What is missing on purpose stands in docs/migrate-from-horovod.md, and the lists below say so.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
from pathlib import Path

import pytest

from elasticrun import _binary

DOCUMENT = Path(__file__).parents[4] / "docs/migrate-from-horovod.md"

#: Options that take one of few values, or a file; all others take a number if they take a value.
VALUES = {
    "--binding-args": "-x",
    "--blacklist-cooldown-range": "10 100",
    "--hosts": "localhost:2",
    "--log-level": "INFO",
    "--mpi-args": "-x",
    "--network-interface": "lo",
    "--network-interfaces": "lo",
    "-H": "localhost:2",
}
FILES = ("--autotune-log-file", "--config-file", "--ssh-identity-file", "--timeline-filename", "-i")
HOSTS = ("--host-discovery-script", "--hostfile", "-hostfile")
#: They print something and end.
END = ("--check-build", "-cb", "--version", "-v")


def options(launch: Path) -> list[tuple[str, bool]]:
    """The options of horovodrun, each spelling, and whether it takes a value."""
    found = []
    for node in ast.walk(ast.parse(launch.read_text())):
        if not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"):
            continue
        names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        action = ast.unparse(keywords["action"]) if "action" in keywords else "'store'"
        # Its own actions for switches are made by functions of these names.
        alone = any(part in action for part in ("store_true", "true_action", "false_action", "bool_action", "version", "check_build"))
        alone = alone or ast.unparse(keywords.get("nargs", ast.Constant(None))) == "0"
        found += [(name, not alone) for name in names if name.startswith("-")]
    return found


def test_options(source: Path, tmp_path: Path) -> None:
    script = tmp_path / "discover.sh"
    script.write_text("#!/bin/sh\necho localhost:2\n")
    script.chmod(0o755)
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    (tmp_path / "file").write_text("")
    special = {
        **VALUES,
        **dict.fromkeys(FILES, str(tmp_path / "file")),
        **dict.fromkeys(HOSTS, str(tmp_path / "hosts")),
        "--host-discovery-script": str(script),
        "--output-filename": str(tmp_path),
    }
    known = options(source / "horovod/runner/launch.py")
    refused = []
    for name, takes_value in known:
        words = [name, *(special.get(name, "2").split() if takes_value else [])]
        if name not in END:
            np = [] if name in ("-np", "--num-proc") else ["-np", "2"]
            words = [*np, *words, "--dry-run", "true"]
        done = subprocess.run(
            [str(_binary.find()), *words], capture_output=True, text=True, timeout=20
        )
        if done.returncode != 0:
            refused.append(f"{' '.join(words)}: {done.stderr.strip()}")
    assert not refused, "\n".join(refused)
    assert len(known) > 40


def public_names(init: Path) -> set[str]:
    """What a package of Horovod offers: what its `__init__` imports from Horovod, defines, and no underscore."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(init.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("horovod"):
            names |= {alias.asname or alias.name for alias in node.names}
    for node in ast.parse(init.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("module", ["torch"])
def test_modules(module: str, source: Path) -> None:
    pytest.importorskip(module.partition(".")[0])
    ours = importlib.import_module(f"elasticrun.{module}")
    theirs = public_names(source / "horovod" / module.replace(".", "/") / "__init__.py")
    document = DOCUMENT.read_text()
    unknown = [name for name in sorted(theirs) if not hasattr(ours, name) and f"`{name}`" not in document]
    assert not unknown, f"neither in elasticrun.{module} nor in {DOCUMENT.name}: {unknown}"


def test_run_takes_the_same_arguments(source: Path) -> None:
    import elasticrun

    tree = ast.parse((source / "horovod/runner/__init__.py").read_text())
    (run,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "run"]
    theirs = [arg.arg for arg in run.args.args]
    ours = inspect.signature(elasticrun.run).parameters
    document = DOCUMENT.read_text()
    unknown = [name for name in theirs if name not in ours and f"`{name}`" not in document]
    assert not unknown, f"neither in elasticrun.run nor in {DOCUMENT.name}: {unknown}"
