"""Whether each row of a data set was committed once in each epoch, by the positions of its row groups.

A row group has positions from 0 to its number of rows, in the order of the epoch. Workers log spans of positions that they have
processed. A row is at one position, also if a predicate drops it, so the proof is about positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["DatasetLog", "EpochProof", "Proof", "prove"]

Span = tuple[int, int]
Commit = tuple[int, int, int]


@dataclass
class DatasetLog:
    """What the logs of a job tell of one data set.

    Attributes:
        digest: identifies the data set.
        groups: rows of each row group.
        reader: tells apart data sets of the same files that are read with another condition, windows or seed.
        spans: committed positions by epoch and row group.
        skipped: rows that could not be read, by epoch.
        dropped: positions that ``drop_last`` has left out, by epoch and row group.
        first: epoch and rows left when the job began.
        last: epoch and rows left as of the newest commit.
        last_dropped: rows of ``last`` that ``drop_last`` leaves out, since the epoch has ended.
    """

    digest: str
    groups: Sequence[int]
    reader: str = ""
    spans: dict[int, dict[int, list[Span]]] = field(default_factory=dict)
    skipped: dict[int, int] = field(default_factory=dict)
    dropped: dict[int, dict[int, list[Span]]] = field(default_factory=dict)
    first: tuple[int, int] = (0, 0)
    last: tuple[int, int] | None = None
    last_dropped: int = 0
    _first_round: int | None = None
    _last_commit: Commit | None = None

    @property
    def rows(self) -> int:
        """Rows of an epoch."""
        return sum(self.groups)

    def name(self) -> str:
        """The data set in the words of the log."""
        return f"data set {self.digest}" + (f", reader {self.reader}" if self.reader else "")

    def began(self, round_: int, epoch: int, left: int) -> None:
        """A round began at this position."""
        if self._first_round is None or round_ < self._first_round:
            self._first_round, self.first = round_, (epoch, left)

    def processed(self, epoch: int, spans: dict[int, list[Span]], skipped: int) -> None:
        """A valid commit holds these positions."""
        _add(self.spans.setdefault(epoch, {}), spans)
        self.skipped[epoch] = self.skipped.get(epoch, 0) + skipped

    def left_out(self, epoch: int, spans: dict[int, list[Span]]) -> None:
        """``drop_last`` has left out these positions, as a valid commit tells."""
        if spans:
            _add(self.dropped.setdefault(epoch, {}), spans)

    def sealed(self, commit: Commit, epoch: int, left: int, left_out: int = 0) -> None:
        """A valid commit has this position. ``drop_last`` leaves out ``left_out`` rows of those that are left."""
        if self._last_commit is None or commit > self._last_commit:
            self._last_commit, self.last, self.last_dropped = commit, (epoch, left), left_out
        elif commit == self._last_commit:
            self.last_dropped = max(self.last_dropped, left_out)


def _add(groups: dict[int, list[Span]], more: dict[int, list[Span]]) -> None:
    for group, spans in more.items():
        groups.setdefault(group, []).extend(spans)


@dataclass(frozen=True)
class EpochProof:
    """The result for an epoch, as numbers of rows."""

    epoch: int
    committed: int
    repeated: int
    skipped: int
    #: Rows that ``drop_last`` has left out.
    dropped: int
    left: int
    missing: int
    #: Committed rows that the position counts as left, so that they would be processed again.
    forgotten: int
    #: Committed positions that the data set does not have.
    unknown: int
    #: Whether an unfinished epoch is an error.
    must_be_finished: bool

    def is_good(self) -> bool:
        """Whether each row was committed once, or is left in an epoch that goes on."""
        wrong = self.repeated or self.missing or self.forgotten or self.unknown
        return not (wrong or (self.must_be_finished and self.left))

    def line(self) -> str:
        """The result in words."""
        parts = [f"{self.committed:,} rows committed, {self.repeated:,} of them more than once"]
        parts += [f"{self.skipped:,} of them could not be read"] if self.skipped else []
        parts += [f"{self.dropped:,} left out by drop_last"] if self.dropped else []
        parts += [f"{self.left:,} left"] if self.left else []
        parts += [f"{self.missing:,} missing"]
        parts += [f"{self.forgotten:,} committed and left"] if self.forgotten else []
        parts += [f"{self.unknown:,} that are no rows of the data set"] if self.unknown else []
        return f"epoch {self.epoch}: {', '.join(parts)}"


@dataclass(frozen=True)
class Proof:
    """The result for a data set."""

    dataset: DatasetLog
    epochs: list[EpochProof]

    def is_good(self) -> bool:
        """Whether the result of each epoch is good."""
        return all(epoch.is_good() for epoch in self.epochs)

    def lines(self) -> Iterator[str]:
        """The results in words."""
        return (epoch.line() for epoch in self.epochs)


def prove(dataset: DatasetLog, finished: int | None = None) -> Proof:
    """Examines each epoch from the first to the last one of the job.

    Args:
        dataset: the data set.
        finished: how many epochs, from epoch 0 on, must be finished.
    """
    first, left_at_first = dataset.first
    last, left_at_last = dataset.last or dataset.first
    # Epochs with rows, even if no sealed commit tells of them, and those that the caller asks for.
    begin = min([first, *dataset.spans])
    end = max([last, *dataset.spans, (finished or 0) - 1])
    proofs = []
    for epoch in range(begin, end + 1):
        committed, repeated, unknown = _count(dataset, dataset.spans.get(epoch, {}))
        dropped = _dropped(dataset, epoch) - committed
        expected = left_at_first if epoch == first else dataset.rows
        if epoch < last:
            left = 0
        elif epoch == last and dataset.last is not None:
            dropped = max(dropped, dataset.last_dropped)
            left = left_at_last - dropped
        else:
            # No commit tells of the position.
            left = max(expected - committed, 0)
        proofs.append(
            EpochProof(
                epoch,
                committed,
                repeated,
                dataset.skipped.get(epoch, 0),
                dropped,
                left,
                missing=max(expected - left - dropped - committed, 0),
                forgotten=max(committed + dropped + left - expected, 0),
                unknown=unknown,
                must_be_finished=finished is not None and epoch < finished,
            )
        )
    # The job may have ended where this epoch begins.
    if last > first and end == last >= (finished or 0) and not dataset.spans.get(last) and left_at_last == dataset.rows:
        proofs.pop()
    return Proof(dataset, proofs)


def _dropped(dataset: DatasetLog, epoch: int) -> int:
    """Positions that are committed or that ``drop_last`` has left out."""
    both: dict[int, list[Span]] = {}
    _add(both, dataset.spans.get(epoch, {}))
    _add(both, dataset.dropped.get(epoch, {}))
    return _count(dataset, both)[0]


def _count(dataset: DatasetLog, by_group: dict[int, list[Span]]) -> tuple[int, int, int]:
    """Positions, how many of them more than once, and positions that no row group has."""
    committed = repeated = unknown = 0
    for group, spans in by_group.items():
        rows = dataset.groups[group] if 0 <= group < len(dataset.groups) else 0
        once = twice = 0
        for lo, hi in sorted(spans):
            unknown += max(hi - max(lo, rows), 0)
            lo, hi = min(lo, rows), min(hi, rows)
            # Positions below `once` were committed before, and those below `twice` are counted as repeated.
            committed += max(hi - max(lo, once), 0)
            repeated += max(min(hi, once) - max(lo, twice), 0)
            twice = max(twice, min(hi, once))
            once = max(once, hi)
    return committed, repeated, unknown
