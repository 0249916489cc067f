"""Proves from the audit logs that each row of an epoch was committed once.

    python -m elasticrun.data.audit AUDIT_DIRECTORY [DATA ...]

With ``audit=DIRECTORY`` the workers of a job log which rows they have processed for which commit. A commit is void if a later
round continued from an older one, or if no worker has sealed it. The exit code is 0 if each row was committed once in each
finished epoch, 1 if not, and 2 if the files cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Audit", "main", "read"]

Commit = tuple[int, int, int]


@dataclass
class Audit:
    """The contents of the audit logs of a job."""

    #: Commits with rows that are part of the history of the job.
    valid: set[Commit] = field(default_factory=set)
    #: Commits with rows that are not.
    void: set[Commit] = field(default_factory=set)
    #: How often each (row group, row) was committed, by epoch.
    rows: dict[int, Counter[tuple[int, int]]] = field(default_factory=dict)

    def repeated(self) -> list[tuple[int, int, int]]:
        """(epoch, row group, row) of rows that were committed more than once."""
        return [(epoch, *row) for epoch, rows in self.rows.items() for row, times in rows.items() if times > 1]


def read(directory: str | Path) -> Audit:
    """Reads all logs of an audit.

    Raises:
        ValueError: a file is not an audit log.
        OSError: it cannot be read.
    """
    parts: list[tuple[Commit, int, dict[str, list[int]]]] = []
    made: set[Commit] = set()
    bases: dict[int, Commit] = {}
    for path in sorted(Path(directory).glob("*.jsonl")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                entry: dict[str, Any] = json.loads(line)
                if "commit" in entry:
                    parts.append((_commit(entry["commit"]), entry["epoch"], entry["rows"]))
                elif "sealed" in entry:
                    made.add(_commit(entry["sealed"]))
                elif entry["base"] is not None:
                    bases[entry["round"]] = _commit(entry["base"])
            except (ValueError, KeyError) as error:
                raise ValueError(f"{path}:{number}: not a line of an audit ({error})") from error
    last = max(bases, default=0)
    audit = Audit()
    for commit, epoch, groups in parts:
        later = [base for round_, base in bases.items() if round_ > commit[1]]
        if all(commit <= base for base in later) and (later or commit in made or commit[1] < last):
            audit.valid.add(commit)
            rows = audit.rows.setdefault(epoch, Counter())
            rows.update((int(group), row) for group, numbers in groups.items() for row in numbers)
        else:
            audit.void.add(commit)
    return audit


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of the module."""
    parser = argparse.ArgumentParser(prog="python -m elasticrun.data.audit", description=__doc__.split("\n")[0])
    parser.add_argument("directory", help="the directory of the audit")
    parser.add_argument("data", nargs="*", help="the data set, to see that no row is missing")
    given = parser.parse_args(arguments)
    try:
        audit = read(given.directory)
    except (OSError, ValueError) as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    total = None
    if given.data:
        from .dataset import ParquetDataset

        total = ParquetDataset(given.data, batch_size=1).rows
    good = True
    for epoch, rows in sorted(audit.rows.items()):
        twice = sum(times > 1 for times in rows.values())
        done = epoch < max(audit.rows)
        summary = f"epoch {epoch}: {len(rows):,} rows committed, {twice:,} of them more than once"
        if total is not None:
            summary += f", {total - len(rows):,} {'missing' if done else 'left or missing'}"
            good &= not done or len(rows) == total
        print(summary)
        good &= twice == 0
    print(f"{len(audit.valid):,} commits hold rows, {len(audit.void):,} are void")
    return 0 if good else 1


def _commit(name: str) -> Commit:
    epoch, round_, count = (int(part) for part in name.split("."))
    return epoch, round_, count


if __name__ == "__main__":
    sys.exit(main())
