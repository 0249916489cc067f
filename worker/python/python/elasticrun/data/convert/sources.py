"""The files that can be converted, by their names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from ...errors import DataError
from .arrow_files import ArrowFile
from .columns import Column
from .json_lines import JsonLines
from .mds import shards
from .source import Source
from .web_dataset import WebDataset

#: Names of formats, as ``--format`` takes them.
FORMATS = ("webdataset", "jsonl", "mds", "arrow")

_SUFFIXES = {
    ".tar": "webdataset",
    ".tar.gz": "webdataset",
    ".tgz": "webdataset",
    ".jsonl": "jsonl",
    ".jsonl.gz": "jsonl",
    ".jsonl.zst": "jsonl",
    ".ndjson": "jsonl",
    ".arrow": "arrow",
}


def opened(path: Path, format: str | None, columns: Mapping[str, Column]) -> list[Source]:
    """The sources of a file, or of the files of a directory in the order of their names.

    Args:
        path: of the file or directory.
        format: of the files; None for that of their names.
        columns: types of columns that the user has named.

    Raises:
        DataError: there is none, or the format is unknown.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file or directory")
    if path.is_dir():
        return _of_directory(path, format, columns)
    kind = format or _format_of(path)
    if kind is None:
        raise DataError(f"{path}: its format is unknown; expected {', '.join(_SUFFIXES)}, or --format")
    if kind == "mds":
        raise DataError(f"{path}: give the directory with index.json")
    makers: dict[str, Callable[[], Source]] = {
        "webdataset": lambda: WebDataset(path, columns),
        "jsonl": lambda: JsonLines(path, columns),
        "arrow": lambda: ArrowFile(path),
    }
    return [makers[kind]()]


def _of_directory(path: Path, format: str | None, columns: Mapping[str, Column]) -> list[Source]:
    if format in (None, "mds") and (path / "index.json").exists():
        return list(shards(path, _json(path / "index.json")))
    if format == "mds":
        raise DataError(f"{path}: has no index.json, so it is no MDS data set")
    named = [(file, _format_of(file)) for file in sorted(path.iterdir()) if file.is_file()]
    files = [file for file, kind in named if kind is not None and format in (None, kind)]
    kinds = {kind for _, kind in named if kind is not None and format in (None, kind)}
    if not files:
        raise DataError(f"{path}: has no file that ends with {', '.join(_SUFFIXES)}, and no index.json of MDS")
    if len(kinds) > 1:
        raise DataError(f"{path}: has files of several formats ({', '.join(sorted(kinds))}): choose one by --format")
    return [source for file in files for source in opened(file, None, columns)]


def _format_of(path: Path) -> str | None:
    name = path.name.lower()
    return next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), None)


def _json(path: Path) -> object:
    try:
        found: object = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    return found
