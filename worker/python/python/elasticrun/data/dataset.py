"""A Parquet data set that the workers of a job read together."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, cast

from .. import _native, lifecycle
from ..errors import StateError
from .batch import Batch
from .progress import Progress, Rate

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["ParquetDataset"]

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


class ParquetDataset:
    """The rows of Parquet files, shuffled, and shared out over the workers of the job.

    Iterating gives the rest of the current epoch in batches of this worker's rows. All workers have as many batches: near
    the end some may have fewer rows, or none, and call the collectives of the step all the same. Make it an attribute of
    the state, and commit: then each row of an epoch is trained on exactly once, through any failures and resizes. Between
    two commits rows are counted by this process only, and are read again after a failure. A commit, and a check for host
    updates, counts the batch that was given last as processed: call both behind the step and not before it.

    Args:
        paths: a file or a directory of Parquet files, those below it too, or several of them. All workers see the same
            files; names that begin with ``_`` or ``.`` are left out.
        batch_size: rows of this worker at each step, at least 1. It may differ from worker to worker.
        columns: names of the columns to read; all if none are given.
        shuffle: whether rows are shuffled, anew in each epoch.
        seed: what the order is drawn from. All workers pass the same.
        shuffle_rows: the next row is any of so many, in the row groups that are open at a time.
        memory: for row groups in memory: bytes, or as "256 MiB".
        threads: those that read and decode; as the machine has cores, at most four, if none.
        on_error: "raise" an error that names file, row group and column, or "skip" the row group and count it in
            :attr:`skipped`.
        split: "rows" gives each worker as many rows, within one; "never" keeps row groups whole, where loads differ by
            less than the largest one.
        weight: how much this worker gets in proportion to the others, a whole number. 0 is nothing.
        audit: a directory for files that say which rows each commit holds, to prove that each was used once.

    Raises:
        DataError: the files cannot be read, or hold no such columns.
        ValueError: an argument is not what it may be.
    """

    def __init__(
        self,
        paths: str | PathLike[str] | Sequence[str | PathLike[str]],
        *,
        batch_size: int,
        columns: Sequence[str] | None = None,
        shuffle: bool = True,
        seed: int = 0,
        shuffle_rows: int = 16_384,
        memory: int | str = "256 MiB",
        threads: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        split: Literal["rows", "never"] = "rows",
        weight: int = 1,
        audit: str | PathLike[str] | None = None,
    ) -> None:
        several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: must be at least 1")
        _one_of("on_error", on_error, ("raise", "skip"))
        _one_of("split", split, ("rows", "never"))
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed={seed}: must be from 0 to 2**64 - 1")
        self._data = _native.Data(
            several,
            columns=None if columns is None else list(columns),
            batch_size=batch_size,
            seed=seed if shuffle else None,
            shuffle_rows=shuffle_rows,
            memory=_bytes(memory),
            threads=threads,
            skip_errors=on_error == "skip",
            whole_row_groups=split == "never",
            weight=weight,
            audit=audit,
        )
        self.batch_size = batch_size
        #: The round in which rows were handed out last.
        self._round: tuple[int, int] | None = None
        self._is_shard = False
        self._rate = Rate()

    @property
    def rows(self) -> int:
        """Rows of an epoch, of all workers."""
        return self._data.size()[0]

    @property
    def row_groups(self) -> int:
        """Row groups of all files."""
        return self._data.size()[1]

    @property
    def files(self) -> int:
        """Files of the data set."""
        return self._data.size()[2]

    @property
    def schema(self) -> dict[str, str]:
        """Names and types of the columns, as Arrow calls them."""
        return dict(self._data.schema())

    @property
    def epoch(self) -> int:
        """The epoch, from 0."""
        return self._data.position()[0]

    @property
    def skipped(self) -> tuple[int, int]:
        """Pieces of row groups that this worker could not read and skipped, and their rows."""
        return self._data.skipped()

    def __len__(self) -> int:
        """Batches that are left of this epoch, the same number for all workers; 0 before the first round."""
        return self._data.position()[3]

    def __iter__(self) -> Iterator[Batch]:
        """Batches to the end of the epoch, from wherever it is.

        Raises:
            DataError: a row group cannot be read. No row is lost; the next iteration tries again.
            StateError: a new round has begun and the data set is not a part of the state, so it has not been told.
            WorkersFailed: the round is over.
        """
        self._require_round()
        return self._batches()

    def _batches(self) -> Iterator[Batch]:
        while (batch := self._data.next_batch()) is not None:
            self._rate.count(batch.processed())
            yield Batch(batch)

    def epochs(self, stop: int) -> Iterator[int]:
        """The numbers of the epochs from this one to before ``stop``; goes on to the next behind each.

            for epoch in data.epochs(10):
                for batch in data:
                    ...
        """
        while self.epoch < stop:
            yield self.epoch
            self.next_epoch()

    def next_epoch(self) -> None:
        """Goes to the start of the next epoch, in all workers at the same step. What is left of this one is not read."""
        if not self._is_shard:
            self._require_round()
        self._data.next_epoch()

    def progress(self) -> Progress:
        """How far the epoch is, as of the last commit, and how fast it goes."""
        epoch, left, own, steps = self._data.position()
        rows = self.rows
        size = lifecycle.size() if lifecycle.is_initialized() else 1
        return Progress(epoch, rows - left, rows, own, steps, self._rate.per_second(), size)

    # What the state calls, in all workers.

    def _enter(self) -> None:
        """Rows are handed out to the workers of a round."""
        lane = lifecycle.lane("data")
        self._data.enter(lane.rank, self._gather(self._data.introduce()))
        self._data.audit_round()
        self._round = _this_round()

    def _enter_shard(self, shard: int, count: int) -> None:
        """Without a job: this process reads one of so many shards, for good."""
        self._data.enter_shard(shard, count)
        self._is_shard = True

    def _agree(self) -> None:
        """Before a commit: all workers hear what all have processed."""
        self._data.agree(self._gather(self._data.report()))

    def _committed(self) -> None:
        """The commit is made."""
        self._data.committed()

    def _save(self) -> bytes:
        if self._data.is_ahead():
            raise StateError(
                "the data set has processed rows that no other worker knows of: call commit(), which tells them, instead"
                " of save()"
            )
        return self._data.save()

    def _restore(self, stored: bytes) -> None:
        self._data.restore(stored)

    def _gather(self, own: bytes) -> list[bytes]:
        work = lifecycle.lane("data").allgather_bytes(own, "data")
        work.wait()
        return cast("list[bytes]", work.result())

    def _require_round(self) -> None:
        if self._round is None:
            lifecycle.lane("data")
            self._enter()
        elif self._round != _this_round():
            raise StateError(
                "a new round has begun, and the data set was not told: make it an attribute of the state"
            )


def _this_round() -> tuple[int, int]:
    world = lifecycle.world()
    return world.epoch, world.round


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        choices = " or ".join(repr(choice) for choice in allowed)
        raise ValueError(f"{name}={value!r}: must be {choices}")


def _bytes(amount: int | str) -> int:
    if isinstance(amount, int):
        number, unit = float(amount), ""
    else:
        match = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", amount)
        if match is None or match[2].upper() not in _UNITS:
            raise ValueError(f"memory={amount!r}: must be a number of bytes, or one with KiB, MiB or GiB")
        number, unit = float(match[1]), match[2].upper()
    if number <= 0:
        raise ValueError(f"memory={amount!r}: must be more than 0")
    return int(number * _UNITS[unit])
