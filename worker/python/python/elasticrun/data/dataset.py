"""A Parquet data set that the workers of a job divide among them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from .. import _coordinates, _native, lifecycle
from ..errors import DataError, StateError
from . import arguments, checkpoint, petastorm, selectors
from .ahead import Awaited, Steps
from .batch import Batch, Columns
from .forms import Form, Image, check
from .making import B, BatchMaker, Made
from .progress import Progress, Rate

if TYPE_CHECKING:
    from os import PathLike

    import numpy as np
    import pyarrow.compute as pc

    from .ngram import NGram

__all__ = ["ParquetDataset"]

#: After so many steps with ``where``, workers tell each other whether they have rows left.
_STEPS_BETWEEN_LOOKS = 16

#: From this number of passes over a row group on, a warning is given.
_MANY_PASSES = 4


class ParquetDataset:
    """The rows of Parquet files, shuffled, and divided among the workers of the job.

    Iterating returns the rest of the current epoch in batches of this worker's rows. An iteration behind one that has come to the
    end of the epoch begins the next epoch. All workers have the same number of batches. The last batches of some workers may have
    fewer rows, or none. Call the collectives of the step in any case.

    Make the data set an attribute of the state. Each row of an epoch is then committed exactly once, through failures and
    resizes. Rows processed since the last commit are read again after a failure. A commit or a check for host updates covers
    the last batch returned: call them after the step.

    Args:
        paths: one or several files, directories, which are searched recursively, or patterns such as ``/data/part-*.parquet`` and
            ``/data/**/*.parquet``. ``file://``, ``s3://``, ``gs://``, ``az://`` and ``abfs://`` addresses take credentials from
            ``storage_options`` or the environment. All workers must see the same files. Names that begin with ``_`` or ``.`` are
            ignored.
        batch_size: rows of this worker at each step, at least 1. May differ between workers. Not for
            ``order="deterministic"``.
        order: "local" moves few rows when workers change. "deterministic" returns the same rows at the same step for any number
            of workers and any history of them.
        global_batch_size: for ``order="deterministic"``: rows of each step, of all workers together. Must be the same in all of
            them.
        stripes: for ``order="deterministic"``: number of row groups that all workers together read at a time, by default 5,040.
            Must be at least the maximum number of workers. Another number gives another order.
        lanes: the former name of ``stripes``.
        columns: names of the columns to read, by default all.
        forms: forms of columns by name, where their type leaves a choice: ``{"tokens": Pad(0), "label": Fill(-1)}``. See
            :class:`Pad`, :class:`Pack`, :class:`Nest`, :class:`Fill` and :class:`Image`. A field of a structure is named
            ``place.x``.
        merge_schemas: whether files may have different columns. The data set has the columns of all files; one that a file lacks is
            null there. Integers and floats have the widest type of all files. By default, files must agree in the columns that
            are read.
        shuffle: whether rows are shuffled, differently in each epoch.
        seed: key of the order. Must be the same in all workers.
        shuffle_rows: size of the shuffle buffer.
        memory: limit for row groups in memory: bytes, or text such as "256 MiB".
        threads: number of threads that read and decode, by default the number of cores, at most four.
        on_error: "raise" an error that names file, row group and column, or "skip" the row group and count it in
            :attr:`skipped`.
        drop_last: whether an epoch ends with its last complete step: one in which each worker has ``batch_size`` rows, or all
            workers have ``global_batch_size`` rows together. The rows behind it are left out of this epoch, in all workers. Must
            be the same in all of them. Not with ``where`` or ``ngram``.
        split: "rows" divides rows evenly, to within one. "never" keeps row groups whole, and shares differ by less than the
            largest row group.
        weight: the share of this worker in proportion to the others, an integer. 0 means no rows.
        where: which rows to keep. ``[("label", "==", 3), ("weight", ">", 0.5)]`` lists conditions that must all be true. Of a list
            of such lists, one must be true. Operators are ==, !=, <, <=, >, >=, in and not in; ``== None`` matches null. Or an
            expression of pyarrow: ``pc.field("label") == 3``. Row groups and rows that cannot match are not decoded. Dropped
            rows count as processed.
        row_groups: the row groups of the data set: numbers, conditions as for ``where`` on their statistics, a function of a
            :class:`RowGroup`, or a Petastorm selector over an index. Other row groups are left out of the data set and its epochs.
        codecs: "petastorm" decodes the columns of a data set that Petastorm wrote, by its stored schema.
        transform: a function from the columns of a batch, as a mapping from names to arrays, to other columns. It is called for
            each batch, including batches without rows, in a thread of its own, one batch after the other, ahead of the step.
        transform_workers: number of processes that call ``transform``, which are forked from this one. 0: the thread. All
            columns are sent to them, so choose those that it needs by ``columns``.
        prefetch: number of batches that are decoded and transformed ahead of the step. By default 2 with a ``transform``,
            ``codecs`` or an :class:`Image`, twice the number of ``transform_workers`` if that is more, and 0 otherwise: then
            columns are decoded as they are asked for. Row groups are always read ahead.
        ngram: windows in place of rows. Columns are then named "0/name", where 0 is the first row of the window.
        storage_options: options of the object store by the names of the crate ``object_store``, such as
            ``aws_access_key_id`` and ``azure_storage_account_key``. They precede the environment. Neither errors nor logs have
            their values.
        cache: a local directory that caches remote files.
        cache_size: limit of the cache: bytes, or text such as "10 GiB".
        audit: a directory for the audit log, which proves that each row was used once.

    Raises:
        DataError: the files cannot be read, or lack a column.
        TypeError: the batch size does not match the order, or both ``stripes`` and ``lanes`` are given.
        ValueError: an argument is invalid.
    """

    def __init__(
        self,
        paths: str | PathLike[str] | Sequence[str | PathLike[str]],
        *,
        batch_size: int | None = None,
        order: Literal["local", "deterministic"] = "local",
        global_batch_size: int | None = None,
        stripes: int | None = None,
        lanes: int | None = None,
        columns: Sequence[str] | None = None,
        forms: Mapping[str, Form] | None = None,
        merge_schemas: bool = False,
        shuffle: bool = True,
        seed: int = 0,
        shuffle_rows: int = 16_384,
        memory: int | str = "256 MiB",
        threads: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        drop_last: bool = False,
        split: Literal["rows", "never"] = "rows",
        weight: int = 1,
        where: Sequence[object] | pc.Expression | None = None,
        row_groups: Any = None,
        codecs: Literal["petastorm"] | None = None,
        transform: Callable[[Mapping[str, np.ndarray[Any, Any]]], Mapping[str, Any]] | None = None,
        transform_workers: int = 0,
        prefetch: int | None = None,
        ngram: NGram | None = None,
        storage_options: Mapping[str, str | bool | int] | None = None,
        cache: str | PathLike[str] | None = None,
        cache_size: int | str = "10 GiB",
        audit: str | PathLike[str] | None = None,
    ) -> None:
        several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        arguments.one_of("order", order, ("local", "deterministic"))
        arguments.one_of("on_error", on_error, ("raise", "skip"))
        arguments.one_of("split", split, ("rows", "never"))
        deterministic = order == "deterministic"
        rows = arguments.rows_of_a_step(deterministic, batch_size, global_batch_size)
        if deterministic and (weight != 1 or split != "rows"):
            raise ValueError(
                "weight and split are for order='local': a step of order='deterministic' is shared out evenly"
            )
        if drop_last and (where is not None or ngram is not None):
            other = "where" if where is not None else "ngram"
            raise ValueError(
                f"drop_last=True and {other}: which step is the last complete one is not known before its rows are read"
            )
        stripes = arguments.number_of_stripes(stripes, lanes)
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed={seed}: must be from 0 to 2**64 - 1")
        addresses = arguments.files(several)
        options = arguments.storage(storage_options)
        fields = _stored_fields(addresses, codecs, options)
        arguments.count("transform_workers", transform_workers)
        if transform_workers and transform is None:
            raise ValueError(f"transform_workers={transform_workers}: there is no transform")
        if prefetch is None:
            decodes = codecs is not None or any(isinstance(form, Image) for form in (forms or {}).values())
            prefetch = max(2, 2 * transform_workers) if decodes or transform is not None else 0
        arguments.count("prefetch", prefetch)
        if transform_workers and not prefetch:
            raise ValueError("prefetch=0: transform_workers work ahead, so it must be at least 1")
        self._data = _native.Data(
            addresses,
            columns=None if columns is None else list(columns),
            batch_size=rows,
            seed=seed if shuffle else None,
            shuffle_rows=shuffle_rows,
            memory=arguments.number_of_bytes("memory", memory),
            threads=threads,
            skip_errors=on_error == "skip",
            whole_row_groups=split == "never",
            weight=weight,
            audit=audit,
            condition=where,
            cache=None if cache is None else (cache, arguments.number_of_bytes("cache_size", cache_size)),
            stripes=stripes if deterministic else None,
            row_groups=selectors.chosen(row_groups, addresses, options),
            windows=None if ngram is None else ngram.windows(self._names(addresses, columns, merge_schemas, options)),
            merge_schemas=merge_schemas,
            storage_options=options,
        )
        kinds = dict(self._data.schema())
        columns_of_batches = Columns(kinds, check(forms, kinds), threads or min(os.cpu_count() or 1, 4))
        self._maker = BatchMaker(
            Steps(self._data), columns_of_batches, fields, transform, transform_workers, ahead=prefetch
        )
        #: Rows of this worker at each step; None in ``order="deterministic"``.
        self.batch_size = batch_size
        #: Rows of all workers at each step in ``order="deterministic"``.
        self.global_batch_size = global_batch_size
        self._memory = arguments.number_of_bytes("memory", memory)
        self._stripes = stripes
        self._may_warn = deterministic
        #: Whether workers may run out of rows before they have taken all steps.
        self._drops_rows = where is not None and not deterministic
        #: Whether a batch has windows in place of rows.
        self._has_windows = ngram is not None
        #: The last round for which rows were assigned.
        self._round: tuple[int, int] | None = None
        #: Whether this process reads one of so many shards, without a job.
        self._is_shard, self._shards = False, 1
        #: Whether all batches of this epoch were returned.
        self._has_ended = False
        #: Whether a loop over :meth:`epochs` goes on to the next epoch.
        self._is_in_epochs = False
        self._rate = Rate()
        self._drop_last = False
        if drop_last:
            self._drop_incomplete_steps()

    def _drop_incomplete_steps(self) -> None:
        """Ends each epoch with its last complete step."""
        if self._drops_rows or self._has_windows:
            raise ValueError("drop_last=True is not for a data set with where or ngram")
        self._data.drop_last()
        self._drop_last = True

    @property
    def rows(self) -> int:
        """Rows of an epoch, of all workers together."""
        return self._data.size()[0]

    @property
    def row_groups(self) -> int:
        """Number of row groups of all files."""
        return self._data.size()[1]

    @property
    def files(self) -> int:
        """Number of files."""
        return self._data.size()[2]

    @property
    def schema(self) -> dict[str, str]:
        """Names and Arrow types of the columns."""
        return dict(self._data.schema())

    @property
    def epoch(self) -> int:
        """The epoch, from 0."""
        return self._data.position()[0]

    @property
    def skipped(self) -> tuple[int, int]:
        """Pieces of row groups that this worker could not read and skipped, and their rows."""
        return self._data.skipped()

    @property
    def undecoded(self) -> int:
        """Images that this worker could not decode, of forms ``Image(on_error="black")``."""
        return self._maker.columns.undecoded

    def __len__(self) -> int:
        """Batches of the next iteration, the same in all workers: the rest of this epoch, or those of the next one if an iteration
        has come to the end. Before the first round those of an epoch with ``elasticrun.size()`` workers of equal weight."""
        if self._has_ended:
            return self._steps_of(self.rows)
        if self._round is None and not self._is_shard:
            return self._steps_of(self._data.position()[1])
        return self._steps_left()

    def _steps_left(self) -> int:
        return self._data.position()[3]

    def _steps_of_epoch(self) -> int:
        """Batches of a whole epoch."""
        return self._steps_of(self.rows)

    def _steps_of(self, rows: int) -> int:
        """Steps in which the workers read so many rows."""
        rows_of_all = self.global_batch_size or self._number_of_shares() * (self.batch_size or 1)
        return rows // rows_of_all if self._drop_last else -(-rows // rows_of_all)

    def _number_of_shares(self) -> int:
        if self._is_shard:
            return self._shards
        if not lifecycle.is_initialized():
            return 1
        return _coordinates.current().count if lifecycle.has_joined() else lifecycle.size()

    def __iter__(self) -> Iterator[Batch]:
        """The remaining batches of the epoch, or those of the next one if the iteration before has come to the end.
        A process without ``init()`` and outside of a job reads all rows.

        Raises:
            DataError: a row group cannot be read. No row is lost; the next iteration tries again.
            StateError: a new round has begun, and the data set has not entered it because it is not part of the state.
            WorkersFailed: the round is over.
        """
        self._continue()
        return self._batches()

    def _continue(self) -> None:
        """Begins an iteration."""
        self._require_round("__iter__")
        if self._has_ended and self._is_in_epochs:
            warnings.warn(
                "the epoch is over, so this iteration has no batches: the loop over epochs() goes on to the next one",
                RuntimeWarning,
                stacklevel=2,
            )
        elif self._has_ended:
            self.next_epoch()

    def _batches(self) -> Iterator[Batch]:
        return self._counted(self._maker.batches())

    def _made(self, begin: Callable[[ParquetDataset, Batch], Awaited[Any]], ahead: int) -> Iterator[Made]:
        """What a loader makes of batches, so many of them ahead."""
        return self._counted(self._maker.made(lambda batch: begin(self, batch), ahead))

    def _counted(self, batches: Iterator[B]) -> Iterator[B]:
        for steps, batch in enumerate(batches, 1):
            self._rate.count(batch._batch.processed())
            if self._may_warn:
                self._warn_of_passes()
            yield batch
            if self._drops_rows and self._has_no_rows_left(steps):
                break
        self._has_ended = True

    def _has_no_rows_left(self, steps: int) -> bool:
        """Whether only steps without rows remain in all workers, because ``where`` has dropped rows. Ends the epoch then. All
        workers call it after the same number of steps."""
        is_done = self._data.position()[2] == 0
        if self._number_of_shares() > 1:
            if self._is_shard or steps % _STEPS_BETWEEN_LOOKS:
                return False
            is_done = all(told == b"done" for told in self._gather(b"done" if is_done else b"not"))
        return is_done and self._data.skip_empty_steps()

    def rows_at(self, numbers: Sequence[int]) -> Batch:
        """The rows with these numbers, in this order, for looking at data. Rows are numbered from 0 in the order of the files and
        within them. Negative numbers count from the end.

        Any worker may call it at any time, with or without a job: no row counts as processed. Rows that ``where`` leaves out have
        numbers, too. ``forms`` and ``codecs`` apply, ``transform`` does not.

        Raises:
            DataError: a row group cannot be read.
            IndexError: there is no such row.
        """
        rows = self.rows
        found = [int(number) + (rows if number < 0 else 0) for number in numbers]
        for given, number in zip(numbers, found, strict=True):
            if not 0 <= number < rows:
                raise IndexError(f"there is no row {given}: the data set has {rows:,} rows, from 0")
        return self._maker.batch(self._data.rows_at(found))

    @property
    def passes(self) -> float:
        """Approximate number of times that this worker decodes each of its row groups in an epoch. More than 1 if ``memory``
        only holds parts of the row groups of its stripes."""
        return self._data.cost()[1]

    def _warn_of_passes(self) -> None:
        """Warns once if the memory limit causes many passes."""
        if self.passes < _MANY_PASSES:
            return
        self._may_warn = False
        needed = self._memory * self.passes / (1 << 30)
        warnings.warn(
            f"each row group is decoded about {self.passes:.0f} times: this worker's part of {self._stripes} stripes does not fit"
            f" into memory. memory='{needed:.1f} GiB' would do, or fewer stripes (which is another order), or more workers",
            RuntimeWarning,
            stacklevel=3,
        )

    def _names(
        self,
        addresses: list[str],
        columns: Sequence[str] | None,
        merge_schemas: bool,
        storage_options: dict[str, str] | None,
    ) -> list[str]:
        """The columns of the files."""
        return list(columns) if columns is not None else _native.columns(addresses, merge_schemas, storage_options)

    @property
    def bytes_read(self) -> int:
        """Bytes of row groups that this worker has read, without footers. Shows what column selection and ``where`` save."""
        return self._data.bytes_read()

    def epochs(self, stop: int) -> Iterator[int]:
        """The numbers of the epochs from this one to before ``stop``. Advances to the next epoch after each.

        for epoch in data.epochs(10):
            for batch in data:
                ...
        """
        if self._has_ended:
            self.next_epoch()
        self._is_in_epochs = True
        try:
            while self.epoch < stop:
                yield self.epoch
                self.next_epoch()
        finally:
            self._is_in_epochs = False

    def next_epoch(self) -> None:
        """Goes to the start of the next epoch, in all workers at the same step. The rest of this epoch is not read."""
        self._require_round("next_epoch")
        self._data.next_epoch()
        self._has_ended = False

    def progress(self) -> Progress:
        """The progress in the epoch as of the last commit, and its rate."""
        epoch, left, left_here, steps = self._data.position()
        rows = self.rows
        return Progress(epoch, rows - left, rows, left_here, steps, self._rate.per_second(), tuple(self._data.pace()))

    def state_dict(self) -> dict[str, Any]:
        """The position as of the last commit, for your own checkpoints: call it behind ``commit()``. All workers have the same
        position, so one of them stores it. ``epoch`` and ``rows``, the processed rows of the epoch, are for readers of the file.
        Without a job there are no commits, and the position is that behind the last batch that was returned.

        Raises:
            StateError: rows were processed since the last commit.
        """
        if self._is_shard and self._shards == 1:
            self._data.agree_alone()
        if self._data.is_ahead():
            raise StateError(
                "the data set has processed rows since the last commit: call commit() first, then state_dict()"
            )
        position = self._data.save()
        epoch, left, _, _ = self._data.position()
        return {"version": checkpoint.VERSION, "position": position, "epoch": epoch, "rows": self.rows - left}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a position of :meth:`state_dict`, with any number of workers. Call it in all workers, before
        ``elastic.run`` or in a reset callback.

        Raises:
            StateError: it is of other files, of another seed, or of another order in the middle of an epoch.
            ValueError: it was not made by :meth:`state_dict`.
        """
        self._restore(checkpoint.entry(state, "position", bytes))
        # The next iteration divides the rows that are left.
        self._round = None

    # Called by the state, in all workers.

    def _enter(self) -> None:
        """Enters a round: divides the remaining rows among its workers."""
        places = _coordinates.current()
        hellos = places.firsts(self._gather(self._data.introduce()))
        # Workers of one coordinate read the same rows, which count once.
        self._data.enter(places.index, hellos, places.is_first)
        self._data.audit_round()
        self._is_shard = False
        self._round = _this_round()
        self._has_ended = False
        self._warn_if_nothing_is_read()

    def _enter_shard(self, shard: int, count: int) -> None:
        """Without a job: this process only reads one of ``count`` shards."""
        self._data.enter_shard(shard, count)
        self._is_shard, self._shards = True, count
        self._warn_if_nothing_is_read()

    def _warn_if_nothing_is_read(self) -> None:
        """Warns if an epoch has no complete step."""
        _, left, _, steps = self._data.position()
        if self._drop_last and left == self.rows > 0 and steps == 0:
            warnings.warn(
                f"drop_last=True leaves out all {left:,} rows: there is no step for which all workers have enough rows",
                RuntimeWarning,
                stacklevel=4,
            )

    def _agree(self) -> None:
        """Before a commit: exchanges the processed rows among all workers."""
        reports = self._gather(self._data.report())
        self._data.agree(_coordinates.current().agreed(reports, "ParquetDataset"))

    def _committed(self) -> None:
        """After a commit: records that it is sealed."""
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
        self._has_ended = False

    def _gather(self, local: bytes) -> list[bytes]:
        work = lifecycle.collective_queue("ParquetDataset").allgather_bytes(local, "data")
        work.wait()
        return cast("list[bytes]", work.result())

    def _require_round(self, method: str) -> None:
        if self._is_shard:
            return
        if not lifecycle.is_initialized() and not lifecycle.is_in_job():
            self._enter_shard(0, 1)
        elif self._round is None:
            lifecycle.collective_queue(f"ParquetDataset.{method}")
            self._enter()
        elif self._round != _this_round():
            raise StateError("a new round has begun, and the data set was not told: make it an attribute of the state")


def _stored_fields(
    addresses: list[str], codecs: str | None, storage_options: dict[str, str] | None
) -> dict[str, petastorm.Field] | None:
    """The fields of a data set with codecs, by name."""
    if codecs is None:
        return None
    if codecs != "petastorm":
        raise ValueError(f"codecs={codecs!r}: must be 'petastorm' or None")
    fields = petastorm.read_schema(addresses, storage_options)
    if fields is None:
        raise DataError(
            f"{addresses[0]}: no schema of Petastorm is noted in _common_metadata, so codecs='petastorm' cannot be"
        )
    return {field.name: field for field in fields}


def _this_round() -> tuple[int, int]:
    world = lifecycle.world()
    return world.epoch, world.round
