"""Names and options of Horovod are known here: of its command line, of its modules, of its `run` function.

What is missing on purpose stands in docs/migrate-from-horovod.md.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import elasticrun
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
        makers = ("store_true", "true_action", "false_action", "bool_action", "version", "check_build")
        alone = any(maker in action for maker in makers)
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
        done = subprocess.run([str(_binary.find()), *words], capture_output=True, text=True, timeout=20)
        if done.returncode != 0:
            refused.append(f"{' '.join(words)}: {done.stderr.strip()}")
    assert not refused, "\n".join(refused)
    assert len(known) > 40


def public_names(file: Path) -> set[str]:
    """What a module of Horovod offers: what it imports from Horovod or defines, at any depth of its conditions."""
    names: set[str] = set()
    todo: list[ast.AST] = [ast.parse(file.read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("horovod"):
            names |= {alias.asname or alias.name for alias in node.names}
        else:
            todo += ast.iter_child_nodes(node)
    return {name for name in names if not name.startswith("_")}


def our_names(module: str) -> set[str]:
    """`__all__` of a module of elasticrun, read without importing its framework."""
    place = Path(elasticrun.__file__).parent.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    names: set[str] = set()
    imported: dict[str, str] = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("elasticrun."):
            package = str(node.module).removeprefix("elasticrun.")
            imported |= {alias.name: f"{package}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names |= set(ast.literal_eval(node.value))
        elif isinstance(node, ast.AugAssign) and ast.unparse(node.target) == "__all__":
            names |= our_names(imported[ast.unparse(node.value).removesuffix(".__all__")])
    assert names, f"elasticrun.{module} has no __all__"
    return names


@pytest.mark.parametrize(
    "module",
    [
        "keras",
        "keras.callbacks",
        "keras.elastic",
        "tensorflow",
        "tensorflow.elastic",
        "tensorflow.keras",
        "tensorflow.keras.callbacks",
        "tensorflow.keras.elastic",
        "torch",
        "torch.elastic",
    ],
)
def test_modules(module: str, source: Path) -> None:
    place = source.joinpath("horovod", *module.split("."))
    theirs = public_names(place / "__init__.py" if place.is_dir() else place.with_suffix(".py"))
    # Its modules `elastic` and `callbacks` also hold what they import from the package above.
    above = module.removesuffix(".elastic").removesuffix(".callbacks")
    ours = our_names(module) | our_names(above)
    unknown = sorted(name for name in theirs - ours if not is_documented(name))
    assert not unknown, f"neither in elasticrun.{module} nor in {DOCUMENT.name}: {unknown}"


def is_documented(name: str) -> bool:
    """Whether a name stands in code quotes in the document."""
    quoted = re.findall(r"`[^`\n]+`", DOCUMENT.read_text())
    return any(re.search(rf"\b{name}\b", words) for words in quoted)


#: Arguments of horovod.run and values for them, but for the function and what it is called with.
ARGUMENTS: dict[str, object] = {
    "num_proc": 2,
    "min_num_proc": 1,
    "max_num_proc": 4,
    "slots": 2,
    "reset_limit": 3,
    "cooldown_range": (10, 100),
    "hosts": "localhost:4",
    "start_timeout": 30,
    "ssh_port": 22,
    "disable_cache": True,
    "verbose": 1,
    "use_gloo": True,
    "use_mpi": False,
    "mpi_args": "-x",
    "network_interface": "lo",
    "network_interfaces": "lo",
    "executable": sys.executable,
}
#: Those that are a file, and older names of others.
FURTHER = ("host_discovery_script", "hostfile", "output_filename", "ssh_identity_file", "np", "min_np", "max_np")


def nothing() -> None:
    """What no worker ever calls."""


def test_run_takes_the_same_arguments(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ast.parse((source / "horovod/runner/__init__.py").read_text())
    (run,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "run"]
    theirs = {arg.arg for arg in run.args.args} - {"func", "args", "kwargs"}
    assert theirs == {*ARGUMENTS, *FURTHER}
    # The real program reads the options, and starts nothing.
    dry = tmp_path / "elasticrun"
    dry.write_text(f'#!/bin/sh\nshift\nexec {_binary.find()} run --dry-run "$@"\n')
    dry.chmod(0o755)
    monkeypatch.setenv("ELASTICRUN_BIN", str(dry))
    for name, value in ARGUMENTS.items():
        with pytest.raises(elasticrun.ElasticrunError, match="no result came"):
            elasticrun.run(nothing, **{name: value})
    with pytest.raises(elasticrun.errors.UsageError):
        elasticrun.run(nothing, no_such_argument=1)
