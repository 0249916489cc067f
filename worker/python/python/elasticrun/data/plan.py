"""Previews what a change of workers moves, without a job.

    elasticrun data plan DATA... --from a:4,b:4 --to a:4,c:2 --done 40%

Reads the footers of a data set and divides the epoch among the first workers. Then computes the plan for the second workers, after
a part of the epoch. The exit code is 0, or 2 if the data set cannot be read or an option is invalid.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import _native
from ..errors import DataError
from . import plan_render

__all__ = ["main"]

#: Host, slot and weight.
Worker = tuple[str, int, int]

_WORKERS = "as in -H: a:4,b:4, or a number of workers on one host; b:4*2 gives each of b's twice as much"


def workers(text: str) -> list[Worker]:
    """Parses a list of workers.

    Raises:
        argparse.ArgumentTypeError: the list is invalid, or names a host twice.
    """
    found: dict[str, list[Worker]] = {}
    for part in text.split(","):
        match = re.fullmatch(r"(?:([^\s:*]+):)?(\d+)(?:\*(\d+))?", part.strip())
        host, slots, weight = match.groups() if match else (None, "0", None)
        host = host or "host"
        if match is None or host in found or not 0 < int(slots) <= 100_000:
            raise argparse.ArgumentTypeError(f"{text!r}: expected workers {_WORKERS}")
        found[host] = [(host, slot, int(weight or 1)) for slot in range(int(slots))]
    named = [worker for of_host in found.values() for worker in of_host]
    if not any(weight for *_, weight in named):
        raise argparse.ArgumentTypeError(f"{text!r}: somebody has to read the rows")
    return named


def part(text: str) -> float:
    """Parses a part of an epoch: 40% or 0.4.

    Raises:
        argparse.ArgumentTypeError: it is not between 0 and 1.
    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a part from 0% to 100%")
    return share


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of the module."""
    given = _parser().parse_args(arguments)
    try:
        preview = _native.plan(
            given.data,
            given.before,
            given.after,
            done=given.done,
            seed=given.seed,
            epoch=given.epoch,
            whole_row_groups=given.whole_row_groups,
        )
        if given.svg:
            Path(given.svg).write_text(plan_render.svg(preview, given.before, given.after))
    except (DataError, OSError) as error:
        print(f"elasticrun data plan: {error}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps(_record(preview, given.before, given.after)))
        return 0
    width = shutil.get_terminal_size((100, 24)).columns
    for line in _lines(preview, given, width):
        print(line)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="elasticrun data plan", description="What a change of workers moves, without a job."
    )
    parser.add_argument("data", nargs="+", help="files, directories or addresses of an object store")
    parser.add_argument("--from", dest="before", type=workers, required=True, metavar="WORKERS", help=_WORKERS)
    parser.add_argument("--to", dest="after", type=workers, required=True, metavar="WORKERS", help="likewise")
    parser.add_argument(
        "--done", type=part, default=0.0, metavar="PART", help="processed before the change: 40%% (default 0%%)"
    )
    parser.add_argument("--epoch", type=int, default=0, help="which epoch (default 0)")
    parser.add_argument("--seed", type=int, default=0, help="the data set's seed (default 0)")
    parser.add_argument(
        "--no-shuffle", dest="seed", action="store_const", const=None, help="row groups in the order of the files"
    )
    parser.add_argument(
        "--whole-row-groups", action="store_true", help="cut no row group, as ParquetDataset(split='never')"
    )
    parser.add_argument("--svg", metavar="FILE", help="draw the plan into FILE")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    return parser


def _lines(preview: _native.PlanPreview, given: argparse.Namespace, width: int) -> Iterator[str]:
    left = plan_render.rows(preview.before)
    yield (
        f"{preview.files:,} {'file' if preview.files == 1 else 'files'}, {preview.row_groups:,} row groups, {preview.rows:,} rows; "
        f"{left:,} left to {len(given.before):,} workers, then to {len(given.after):,}"
    )
    yield ""
    table: list[tuple[str, ...]] = [("worker", "before", "keeps", "of its host", "of others", "after", "")]
    for one in plan_render.changes(preview, given.before, given.after):
        numbers = (one.before, one.kept, one.near, one.far, one.after)
        note = "" if one.stays else "new" if one.comes else "gone"
        table.append((one.name, *(f"{number:,}" for number in numbers), note))
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = [
            cell.ljust(wide) if column in (0, len(widths) - 1) else cell.rjust(wide)
            for column, (cell, wide) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
    yield ""
    yield from plan_render.bars(preview, given.before, given.after, width)
    yield ""
    yield (
        f"moved: {preview.moved:,} rows{_percent(preview.moved, left)}, and no even plan moves fewer; "
        f"dealt out anew: {preview.moved_from_scratch:,}{_percent(preview.moved_from_scratch, left)}"
    )
    yield f"row groups that more than one worker reads: {preview.split_groups:,} of {preview.row_groups:,}"


def _percent(some: int, all: int) -> str:
    return f" ({100 * some / all:.1f} %)" if all else ""


def _record(preview: _native.PlanPreview, before: Sequence[Worker], after: Sequence[Worker]) -> dict[str, object]:
    def named(workers: Sequence[Worker], ranges: list[list[tuple[int, int]]]) -> list[object]:
        return [
            {"host": host, "slot": slot, "rows": sum(end - start for start, end in own), "ranges": own}
            for (host, slot, _), own in zip(workers, ranges, strict=True)
        ]

    return {
        "files": preview.files,
        "row_groups": preview.row_groups,
        "rows": preview.rows,
        "before": named(before, preview.before),
        "after": named(after, preview.after),
        "flows": [{"from": one, "to": other, "rows": rows} for one, other, rows in preview.flows],
        "moved": preview.moved,
        "moved_if_dealt_anew": preview.moved_from_scratch,
        "row_groups_of_several": preview.split_groups,
    }


if __name__ == "__main__":
    sys.exit(main())
