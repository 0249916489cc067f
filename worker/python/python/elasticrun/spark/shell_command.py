"""The command of ``elasticrun --spark`` as executors run it, and the files that Spark copies for it.

This module decides, and reads Python files. It calls nothing of Spark.

- A program that is a Python interpreter, or a name on the PATH, belongs to the executors. It is not copied.
- The Python script is copied, and the modules beside it that it imports.
- Of the other words, relative paths of files of up to :data:`MAX_BYTES` are copied. Absolute paths stay as they are: they are
  in a file system that the executors share.
- With the master ``local`` nothing is copied: its tasks run in the directory of the command (:func:`runs_in_place`).
"""

from __future__ import annotations

import ast
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MAX_BYTES", "Shipment", "file_size", "local_modules", "plan", "runs_in_place", "zip_modules"]

#: Maximum size in bytes of a file that is copied because the command names it. It does not apply to programs and scripts.
MAX_BYTES = 64 << 20

_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
#: Options of Python whose argument is a separate word.
_WITH_ARGUMENT = ("-W", "-X", "--check-hash-based-pycs")


@dataclass(frozen=True)
class Shipment:
    """What Spark copies for a command.

    Attributes:
        words: the command for executors. A copied file is in the working directory of the worker.
        files: paths of the files to copy.
        folder: directory of the user's modules: that of the script.
        imports: names of the modules that are needed first: those that the script imports, or the module after ``-m``.
        too_large: words that name files of more than :data:`MAX_BYTES`, which are not copied.
    """

    words: list[str]
    files: list[str]
    folder: Path
    imports: list[str]
    too_large: list[str]


def runs_in_place(master: str) -> bool:
    """Whether tasks of a Spark master run in the directory of the command, so that its words are right for them as they are.

    ``local-cluster[...]`` has executors with directories of their own.
    """
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def plan(command: Sequence[str], size: Callable[[str], int | None]) -> Shipment:
    """Decides what to copy for a command.

    Args:
        command: the words of the user, at least one.
        size: returns the size of a regular file in bytes; None if there is none of that path.

    Raises:
        ValueError: two files to copy have one name.
    """
    script, module = _entry(command, size)
    words: list[str] = []
    files: dict[str, str] = {}
    too_large: list[str] = []
    for index, word in enumerate(command):
        found = None if os.path.isabs(word) and index != script else size(word)
        if index == 0 and (_is_python(word) or "/" not in word):
            # The working directory of executors is another one.
            words.append(os.path.abspath(word) if "/" in word else word)
        elif found is None:
            words.append(word)
        elif found > MAX_BYTES and index not in (0, script):
            words.append(word)
            too_large.append(word)
        else:
            # Spark sends the file that a link refers to, under the name of that file.
            path = os.path.realpath(word)
            name = os.path.basename(path)
            if files.setdefault(name, path) != path:
                raise ValueError(
                    f"{files[name]} and {path} would both be ./{name} on the executors: rename one, or give the absolute"
                    " path of a file system that they share"
                )
            words.append(f"./{name}")
    if script is None:
        return Shipment(words, list(files.values()), Path.cwd(), [module] if module else [], too_large)
    path = os.path.realpath(command[script])
    return Shipment(words, list(files.values()), Path(path).parent, imports(Path(path)), too_large)


def _is_python(program: str) -> bool:
    return _PYTHON.fullmatch(os.path.basename(program)) is not None


def _entry(command: Sequence[str], size: Callable[[str], int | None]) -> tuple[int | None, str | None]:
    """The place of the Python script in a command, or the first part of the module that Python runs.

    The script is the first argument of Python. Another program may be one, or start one: the first file named ``*.py``.
    """
    if not _is_python(command[0]):
        named = (index for index, word in enumerate(command) if word.endswith(".py") and size(word) is not None)
        return next(named, None), None
    index = 1
    while index < len(command) and command[index].startswith("-"):
        option = command[index]
        if option.startswith("-m"):
            module = option[2:] or "".join(command[index + 1 : index + 2])
            return None, module.partition(".")[0]
        if option.startswith("-c"):
            return None, None
        index += 2 if option in _WITH_ARGUMENT else 1
    return (index if index < len(command) and size(command[index]) is not None else None), None


def file_size(path: str) -> int | None:
    """The size of a regular file in bytes; None if there is none of that path."""
    return os.path.getsize(path) if os.path.isfile(path) else None


def local_modules(folder: Path, names: Iterable[str]) -> list[Path]:
    """The files of modules in ``folder``, and of those there that they import. Of a package these are all Python files.

    No code is executed. A module that is imported by :func:`importlib.import_module` only is not found, unless its package is.
    """
    found: set[Path] = set()
    seen: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        package, module = folder / name, folder / f"{name}.py"
        files = set(package.rglob("*.py")) if package.is_dir() else {module}
        for file in {file for file in files if file.is_file()} - found:
            found.add(file)
            left += imports(file)
    return sorted(found)


def imports(source: Path) -> list[str]:
    """The first parts of the names of the modules that a file imports. Relative imports are left out.

    Of a file that is missing, or no Python, these are none: the executors report it.
    """
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return sorted({name.partition(".")[0] for name in names})


def zip_modules(files: Iterable[Path], folder: Path, archive: Path) -> None:
    """Writes modules below ``folder`` to a ZIP file, from which Python imports them.

    The archive has an entry for each directory. Without it, Python finds no package that lacks ``__init__.py``.
    """
    names = {file: file.relative_to(folder) for file in files}
    # The last parent of a relative path is ".".
    directories = {parent for name in names.values() for parent in list(name.parents)[:-1]}
    # The format begins at 1980. Container images and archives have files of 1970.
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as out:
        for directory in sorted(directories):
            out.writestr(zipfile.ZipInfo(f"{directory.as_posix()}/"), b"")
        for file, name in names.items():
            out.write(file, name)
