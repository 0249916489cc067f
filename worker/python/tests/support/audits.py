"""Reads the commits in the audit logs of a data set."""

from __future__ import annotations

import json
from pathlib import Path

from elasticrun.data import audit

Commit = tuple[int, ...]


def committed(directory: Path) -> dict[tuple[Commit, int], set[tuple[int, int]]]:
    """By commit and epoch, the rows of all workers, as (row group, row): each of them once. Void commits are left out."""
    valid = audit.read(directory).valid
    commits: dict[tuple[Commit, int], set[tuple[int, int]]] = {}
    for path in directory.glob("*.jsonl"):
        for entry in map(json.loads, path.read_text().splitlines()):
            commit = tuple(map(int, entry["commit"].split("."))) if "commit" in entry else None
            if commit is not None and commit in valid:
                rows = commits.setdefault((commit, entry["epoch"]), set())
                own = {(int(group), row) for group, rows in entry["rows"].items() for row in rows}
                assert rows.isdisjoint(own)
                rows |= own
    return commits
