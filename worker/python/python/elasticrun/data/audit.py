"""Proves from the audit logs that each row of an epoch was committed once.

    python -m elasticrun.data.audit AUDIT_DIRECTORY [DATA ...]

With ``audit=DIRECTORY`` the workers of a job log which rows they have processed for which commit. A commit is void if a later
round continued from an older one, or if no worker has sealed it. The exit code is 0 if each row was committed once in each
finished epoch, 1 if not, and 2 if the files cannot be read or are those of another data set.
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

from .audit_proof import DatasetLog, Proof, prove

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
    #: What was committed of each data set, by its digest and the key of its reader. The key is empty in logs of an earlier release.
    datasets: dict[tuple[str, str], DatasetLog] = field(default_factory=dict)
    #: Number of log files.
    files: int = 0
    #: Whether some logs are those of an earlier release, which do not name their data set.
    incomplete: bool = False
    #: Number of lines of all files.
    lines: int = 0

    def is_empty(self) -> bool:
        """Whether the workers have logged nothing: the job ended before its first round."""
        return self.lines == 0

    def repeated(self) -> list[tuple[int, int, int]]:
        """(epoch, row group, row) of rows that were committed more than once."""
        return [(epoch, *row) for epoch, rows in self.rows.items() for row, times in rows.items() if times > 1]


def read(directory: str | Path) -> Audit:
    """Reads all logs of an audit.

    Raises:
        ValueError: a file is not an audit log.
        OSError: it cannot be read.
    """
    lines = _Lines()
    audit = Audit()
    for path in sorted(Path(directory).glob("*.jsonl")):
        audit.files += 1
        lines.dataset = None
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                lines.add(json.loads(line))
                audit.lines += 1
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}:{number}: not a line of an audit ({error})") from error
    for part in lines.parts:
        if not lines.is_valid(part.commit):
            audit.void.add(part.commit)
            continue
        audit.valid.add(part.commit)
        rows = audit.rows.setdefault(part.epoch, Counter())
        rows.update((group, row) for group, numbers in part.rows.items() for row in numbers)
        if part.dataset is None or part.spans is None:
            audit.incomplete = True
        else:
            part.dataset.processed(part.epoch, part.spans, part.skipped)
            part.dataset.left_out(part.epoch, part.left_out)
    for commit, dataset, epoch, left, left_out in lines.sealed:
        if lines.is_valid(commit):
            dataset.sealed(commit, epoch, left, left_out)
    audit.datasets = lines.datasets
    return audit


@dataclass
class _Part:
    """The rows of one worker for a commit."""

    commit: Commit
    dataset: DatasetLog | None
    epoch: int
    rows: dict[int, list[int]]
    #: None in logs of an earlier release.
    spans: dict[int, list[tuple[int, int]]] | None
    #: What ``drop_last`` has left out.
    left_out: dict[int, list[tuple[int, int]]]
    skipped: int


class _Lines:
    """The lines of all logs."""

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self.sealed: list[tuple[Commit, DatasetLog, int, int, int]] = []
        self.datasets: dict[tuple[str, str], DatasetLog] = {}
        #: The data set of the current file.
        self.dataset: DatasetLog | None = None
        self._made: set[Commit] = set()
        self._bases: dict[int, Commit] = {}
        self._last = 0

    def add(self, line: dict[str, Any]) -> None:
        """Adds a line of the current file."""
        if "commit" in line:
            spans = line.get("spans")
            left_out = line.get("left_out", {})
            self.parts.append(
                _Part(
                    _commit(line["commit"]),
                    self.dataset,
                    line["epoch"],
                    {int(group): rows for group, rows in line["rows"].items()},
                    spans and _spans(spans),
                    _spans(left_out),
                    line.get("skipped", 0),
                )
            )
        elif "sealed" in line:
            commit = _commit(line["sealed"])
            self._made.add(commit)
            if self.dataset is not None and "left" in line:
                self.sealed.append((commit, self.dataset, line["epoch"], line["left"], line.get("left_out", 0)))
        else:
            base = line["base"]
            if base is not None:
                self._bases[line["round"]] = _commit(base)
            self._last = max(self._bases, default=0)
            self._enter(line)

    def _enter(self, line: dict[str, Any]) -> None:
        """A round of the current file's worker begins."""
        described = line.get("dataset")
        if described is None:
            return
        digest, reader = described["digest"], described.get("reader", "")
        groups = [rows for rows, times in described["groups"] for _ in range(times)]
        self.dataset = self.datasets.setdefault((digest, reader), DatasetLog(digest, groups, reader))
        self.dataset.began(line["round"], line["epoch"], line["left"])
        if line["base"] is not None:
            # The worker that sealed it may have died before it could log that.
            self.sealed.append((_commit(line["base"]), self.dataset, line["epoch"], line["left"], 0))

    def is_valid(self, commit: Commit) -> bool:
        """Whether a commit is part of the history of the job."""
        later = [base for round_, base in self._bases.items() if round_ > commit[1]]
        made = commit in self._made or commit[1] < self._last
        return all(commit <= base for base in later) and (bool(later) or made)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of the module."""
    parser = argparse.ArgumentParser(prog="python -m elasticrun.data.audit", description=__doc__.split("\n")[0])
    parser.add_argument("directory", help="the directory of the audit")
    parser.add_argument("data", nargs="*", help="the data set, to see that the job has read it")
    parser.add_argument("--epochs", type=int, metavar="N", help="fail unless the first N epochs are finished")
    given = parser.parse_intermixed_args(arguments)
    try:
        audit = read(given.directory)
        if not audit.files:
            raise ValueError(
                f"{given.directory}: no audit log is there: give the directory of ParquetDataset(audit=...)"
            )
        notes = _compare(audit, given.data) if given.data and audit.datasets else []
    except (OSError, ValueError) as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    for note in notes:
        print(note)
    if audit.is_empty():
        print("no worker has logged a round")
        good = not given.epochs
    elif audit.datasets and not audit.incomplete:
        proofs = [prove(dataset, given.epochs) for dataset in audit.datasets.values()]
        good = _print(proofs)
    else:
        good = _earlier_release(audit, given.data, given.epochs)
    print(f"{len(audit.valid):,} commits hold rows, {len(audit.void):,} are void")
    return 0 if good else 1


def _print(proofs: list[Proof]) -> bool:
    for proof in proofs:
        if len(proofs) > 1:
            print(f"{proof.dataset.name()}: {len(proof.dataset.groups):,} row groups, {proof.dataset.rows:,} rows")
        for line in proof.lines():
            print(line)
    return all(proof.is_good() for proof in proofs)


def _compare(audit: Audit, data: Sequence[str]) -> list[str]:
    """Compares the data set with those of the logs.

    Raises:
        ValueError: the job has read another one.
    """
    from .dataset import ParquetDataset

    given = ParquetDataset(list(data), batch_size=1)
    if any(digest == given._data.digest() for digest, _ in audit.datasets):
        return []
    for dataset in audit.datasets.values():
        if len(dataset.groups) < given.row_groups and dataset.rows <= given.rows:
            selected = f"{len(dataset.groups):,} of {given.row_groups:,} row groups"
            return [f"the job read a selection of the data set: {selected}, {dataset.rows:,} of {given.rows:,} rows"]
    raise ValueError(f"{' '.join(data)}: the job read another data set")


def _earlier_release(audit: Audit, data: Sequence[str], epochs: int | None) -> bool:
    """Evaluates logs without spans: they show neither rows that a predicate dropped, nor whether the last epoch is whole."""
    print("these logs of an earlier release do not tell which rows of the last epoch are missing")
    total = None
    if data:
        from .dataset import ParquetDataset

        total = ParquetDataset(list(data), batch_size=1).rows
    good = True
    last = max(audit.rows, default=-1)
    # A job may begin at a later epoch, from a checkpoint.
    first = 0 if epochs else min(audit.rows, default=0)
    for epoch in range(first, max(last + 1, epochs or 0)):
        rows = audit.rows.get(epoch, Counter())
        twice = sum(times > 1 for times in rows.values())
        done = epoch < last
        summary = f"epoch {epoch}: {len(rows):,} rows committed, {twice:,} of them more than once"
        if total is not None:
            summary += f", {total - len(rows):,} {'missing' if done else 'left or missing'}"
            good &= not done or len(rows) == total
        print(summary)
        good &= twice == 0 and bool(rows)
    return good


def _spans(by_group: dict[str, Any]) -> dict[int, list[tuple[int, int]]]:
    return {int(group): [(lo, hi) for lo, hi in own] for group, own in by_group.items()}


def _commit(name: str) -> Commit:
    epoch, round_, count = (int(part) for part in name.split("."))
    return epoch, round_, count


if __name__ == "__main__":
    sys.exit(main())
