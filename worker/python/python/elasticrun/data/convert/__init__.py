"""Converts WebDataset, JSON lines, MDS and Arrow files to Parquet, once, for :class:`elasticrun.data.ParquetDataset`.

    elasticrun data convert SOURCE... --to DIRECTORY

The directory appears when all is written. The exit code is 0, 2 if a source cannot be read or an option is invalid, or 130 after
Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ...errors import DataError
from ..arguments import number_of_bytes
from .columns import Column, parsed_column
from .output import Output
from .progress import Progress
from .source import Source
from .sources import FORMATS, opened

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of the module."""
    given = _parser().parse_args(arguments)
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        print("elasticrun data convert: needs pyarrow: pip install pyarrow", file=sys.stderr)
        return 2
    target = Path(given.to)
    try:
        columns = dict(given.column or ())
        sources = [source for path in given.source for source in opened(Path(path), given.format, columns)]
        if given.dry_run:
            _show(sources)
        else:
            _convert(sources, target, given.row_group, given.file_size)
    except DataError as error:
        print(f"elasticrun data convert: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"elasticrun data convert: interrupted, {target} was not written", file=sys.stderr)
        return 130
    return 0


def _show(sources: Sequence[Source]) -> None:
    first = sources[0]
    for field in first.schema():
        print(f"{field.name}: {field.type}")
    print(f"{len(sources)} files of {first.format}, {sum(source.size for source in sources) / 1e6:,.1f} MB")


def _convert(sources: Sequence[Source], target: Path, row_group: int, file_size: int) -> None:
    if target.exists():
        raise DataError(f"{target}: there already; choose a directory that does not exist")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True)
        output = Output(partial, row_group, file_size)
        progress = Progress(sum(source.size for source in sources))
        for source in sources:
            for batch in source.batches():
                output.write(batch, source.path)
                progress.show(output.rows, source.read)
            progress.finished(source.size)
        output.close()
        partial.rename(target)
    except OSError as error:
        raise DataError(f"{error.filename or target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    progress.end(f"{output.rows:,} rows in {output.files} files of {target}, {output.size / 1e6:,.1f} MB")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="elasticrun data convert",
        description="Converts WebDataset tar files, JSON lines, MDS and Arrow files to Parquet, once.",
    )
    parser.add_argument("source", nargs="+", metavar="SOURCE", help="a file or a directory of files of one format")
    parser.add_argument("--to", required=True, metavar="DIRECTORY", help="what is made; it must not exist")
    parser.add_argument("--format", choices=FORMATS, help="of the sources; by default by their names")
    parser.add_argument(
        "--column",
        action="append",
        type=_column,
        metavar="NAME:TYPE",
        help="the type of a column, in pyarrow's words, such as label:int64; for columns that the first rows do not show",
    )
    parser.add_argument(
        "--row-group", type=_bytes, default="32 MiB", metavar="SIZE", help="bytes of a row group (32 MiB)"
    )
    parser.add_argument("--file-size", type=_bytes, default="512 MiB", metavar="SIZE", help="bytes of a file (512 MiB)")
    parser.add_argument("--dry-run", action="store_true", help="show columns and files, and write nothing")
    return parser


def _bytes(text: str) -> int:
    try:
        return number_of_bytes("SIZE", text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _column(text: str) -> tuple[str, Column]:
    try:
        return parsed_column(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
