"""What a change of workers moves, without a job.

    elasticrun data plan DATA... --from a:4,b:4 --to a:4,c:2 --done 40%

Reads the footers of a data set, deals its first epoch to the workers before, lets them process a part, and makes the plan
that the workers after would make. Exit code 0; 2 if the data set cannot be read or an option is wrong.
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
    """The workers that ``text`` names.

    Raises:
        argparse.ArgumentTypeError: it names none, or one twice.
    """
    found: dict[str, list[Worker]] = {}
    for part in text.split(","):
        match = re.fullmatch(r"(?:([^\s:*]+):)?(\d+)(?:\*(\d+))?", part.strip())
        host, slots, weight = match.groups() if match else (None, "0", None)
        host = host or "host"
        if match is None or host in found or not 0 < int(slots) <= 100_000:
            raise argparse.ArgumentTypeError(f"{text!r}: expected workers {_WORKERS}")
        found[host] = [(host, slot, int(weight or 1)) for slot in range(int(slots))]
    named = [worker for own in found.values() for worker in own]
    if not any(weight for *_, weight in named):
        raise argparse.ArgumentTypeError(f"{text!r}: somebody has to read the rows")
    return named


def part(text: str) -> float:
    """The part of an epoch that ``text`` says: 40% or 0.4.

    Raises:
        argparse.ArgumentTypeError: it says none between 0 and 1.
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
        told = _native.plan(
            given.data,
            given.before,
            given.after,
            done=given.done,
            seed=given.seed,
            epoch=given.epoch,
            whole_row_groups=given.whole_row_groups,
        )
        if given.svg:
            Path(given.svg).write_text(plan_render.svg(told, given.before, given.after))
    except (DataError, OSError) as error:
        print(f"elasticrun data plan: {error}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps(_record(told, given.before, given.after)))
        return 0
    width = shutil.get_terminal_size((100, 24)).columns
    for line in _lines(told, given, width):
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
        "--whole-row-groups", action="store_true", help="cut no row group, as ParquetDataset(whole_row_groups=True)"
    )
    parser.add_argument("--svg", metavar="FILE", help="draw the plan into FILE")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    return parser


def _lines(told: _native.Forecast, given: argparse.Namespace, width: int) -> Iterator[str]:
    left = plan_render.rows(told.before)
    yield (
        f"{told.files:,} {'file' if told.files == 1 else 'files'}, {told.row_groups:,} row groups, {told.rows:,} rows; "
        f"{left:,} left to {len(given.before):,} workers, then to {len(given.after):,}"
    )
    yield ""
    table: list[tuple[str, ...]] = [("worker", "before", "keeps", "of its host", "of others", "after", "")]
    for one in plan_render.changes(told, given.before, given.after):
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
    yield from plan_render.bars(told, given.before, given.after, width)
    yield ""
    yield (
        f"moved: {told.moved:,} rows{_percent(told.moved, left)}, and no even plan moves fewer; "
        f"dealt out anew: {told.anew:,}{_percent(told.anew, left)}"
    )
    yield f"row groups that more than one worker reads: {told.cut:,} of {told.row_groups:,}"


def _percent(some: int, all: int) -> str:
    return f" ({100 * some / all:.1f} %)" if all else ""


def _record(told: _native.Forecast, before: Sequence[Worker], after: Sequence[Worker]) -> dict[str, object]:
    def named(workers: Sequence[Worker], ranges: list[list[tuple[int, int]]]) -> list[object]:
        return [
            {"host": host, "slot": slot, "rows": sum(end - start for start, end in own), "ranges": own}
            for (host, slot, _), own in zip(workers, ranges, strict=True)
        ]

    return {
        "files": told.files,
        "row_groups": told.row_groups,
        "rows": told.rows,
        "before": named(before, told.before),
        "after": named(after, told.after),
        "flows": [{"from": one, "to": other, "rows": rows} for one, other, rows in told.flows],
        "moved": told.moved,
        "moved_if_dealt_anew": told.anew,
        "row_groups_of_several": told.cut,
    }


if __name__ == "__main__":
    sys.exit(main())
