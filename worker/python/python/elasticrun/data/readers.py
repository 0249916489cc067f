"""Readers as Petastorm's: a changed import for scripts that come from there.

    from elasticrun.data import make_batch_reader

    with make_batch_reader("file:///data/train", num_epochs=1, cur_shard=rank, shard_count=size) as reader:
        for rows in reader:
            train(rows.features, rows.label)

They are not elastic: a shard is a shard from the first to the last epoch. What :class:`ParquetDataset` adds is in
docs/migrate-from-petastorm.md. Where Petastorm's behaviour was wrong theirs differs: the seed decides which rows a shard
reads and in which order, and shards are even to the row, so none of them hangs or drops rows at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

from .. import _native
from . import petastorm, petastorm_args
from .dataset import ParquetDataset
from .output_schema import Form
from .ngram import NGram

if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType

__all__ = ["Reader", "make_batch_reader", "make_reader"]

Source: TypeAlias = "str | PathLike[str] | Sequence[str | PathLike[str]]"


class Reader:
    """Rows, or batches of them, as named tuples. Iterating gives all epochs; again after :meth:`reset`.

    Attributes:
        last_row_consumed: whether the last epoch is through.
        batched_output: whether a tuple holds arrays, one value a row.
        ngram: the windows that are given in place of rows, if any: dictionaries of named tuples.
    """

    def __init__(self, data: ParquetDataset, epochs: int | None, workers: tuple[int, int], form: Form) -> None:
        self._data = data
        self._epochs = epochs
        self._shard = workers
        self._first = 0
        self._rows: Iterator[Any] | None = None
        self._form = form
        self.batched_output = form.batched
        self.ngram = form.ngram
        self.last_row_consumed = False
        data._enter_shard(*workers)

    @property
    def schema(self) -> dict[str, str]:
        """Names and types of the fields."""
        return self._data.schema

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> Any:
        if self._rows is None:
            self._rows = self._all()
        return next(self._rows)

    def reset(self) -> None:
        """Reads as many epochs again, from the next one on. At any time: what is left of the current one is not read."""
        self._data.next_epoch()
        self._first = self._data.epoch
        self._rows = None
        self.last_row_consumed = False

    def stop(self) -> None:
        """Ends the iteration."""
        self._rows = iter(())

    def join(self) -> None:
        """Nothing to wait for: threads end with the reader."""

    def cleanup(self) -> None:
        """See :meth:`join`."""

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _all(self) -> Iterator[Any]:
        while self._epochs is None or self._data.epoch < self._first + self._epochs:
            for batch in self._data._batches():
                yield from self._form.rows(batch)
            if self._epochs is not None and self._data.epoch + 1 == self._first + self._epochs:
                break
            self._data.next_epoch()
        self.last_row_consumed = True


def make_reader(dataset_url: Source, schema_fields: Sequence[Any] | NGram | None = None, **options: Any) -> Reader:
    """Rows one by one, each a named tuple of values and arrays; of a data set that Petastorm wrote they are decoded. Arguments as
    for :func:`make_batch_reader`."""
    return _reader(dataset_url, schema_fields, batched=False, **options)


def make_batch_reader(
    dataset_url_or_urls: Source, schema_fields: Sequence[Any] | NGram | None = None, **options: Any
) -> Reader:
    """Batches of rows, each a named tuple of arrays, with the values as they are stored.

    Args:
        dataset_url_or_urls: a path, a ``file://``, ``s3://`` or ``gs://`` URL, or several.
        schema_fields: names of the columns, patterns that match whole names, or fields of a schema; all if none are given. Or an
            :class:`NGram`: windows of rows.
        batch_size: rows of a batch, 1024 if not given.
        num_epochs: how often to read the data; for ever if None, once if not given.
        shuffle_row_groups, shuffle_rows: whether the order is random, anew in each epoch; both on if not given. Rows are
            shuffled if either is on.
        seed: of the order; 0 if not given or None.
        cur_shard, shard_count: which part of how many to read.
        workers_count: threads that read and decode.
        predicate: one of Petastorm's, or any object with ``get_fields`` and ``do_include``. ``in_set`` is pushed down.
        filters: conditions as of pyarrow: see ``ParquetDataset(where=...)``.
        rowgroup_selector: a selector over an index that Petastorm built.
        transform_spec: a :class:`TransformSpec`, or Petastorm's.
        cache_type, cache_location, cache_size_limit: "local-disk" keeps what was read in a directory.
        shuffling_queue_capacity: the next row is one of so many.
        memory: for row groups in memory.

    Raises:
        TypeError: an argument that neither we nor Petastorm know.
        ValueError: an argument is not what it may be, or asks for what is not there.
        DataError: the files cannot be read.
    """
    return _reader(dataset_url_or_urls, schema_fields, batched=True, **options)


def _reader(
    urls: Source,
    fields: Sequence[Any] | NGram | None,
    *,
    batched: bool,
    batch_size: int = 1024,
    num_epochs: int | None = 1,
    shuffle_row_groups: bool = True,
    shuffle_rows: bool = True,
    seed: int | None = None,
    shard_seed: int | None = None,
    cur_shard: int | None = None,
    shard_count: int | None = None,
    workers_count: int | None = None,
    predicate: Any = None,
    filters: Any = None,
    rowgroup_selector: Any = None,
    transform_spec: Any = None,
    shuffling_queue_capacity: int = 16_384,
    memory: int | str = "256 MiB",
    **others: Any,
) -> Reader:
    cache = petastorm_args.check(others)
    if (cur_shard is None) != (shard_count is None):
        raise ValueError("cur_shard and shard_count are given together, or not at all")
    shard, count = cur_shard or 0, shard_count or 1
    if not 0 <= shard < count:
        raise ValueError(f"cur_shard={shard}: must be from 0 to {count - 1}")
    if num_epochs is not None and num_epochs < 1:
        raise ValueError(f"num_epochs={num_epochs}: must be at least 1, or None for ever")
    chosen = seed if seed is not None else shard_seed
    places = [_path(url) for url in ([urls] if isinstance(urls, (str, os.PathLike)) else urls)]
    form = Form(batched, None if batched else petastorm.read_schema(places), transform_spec)
    form.choose(fields, _native.columns(places), predicate)
    where, form.predicate = form.conditions(predicate, filters)
    data = ParquetDataset(
        places,
        batch_size=batch_size,
        columns=form.columns,
        shuffle=shuffle_row_groups or shuffle_rows,
        seed=chosen or 0,
        shuffle_rows=shuffling_queue_capacity,
        memory=memory,
        threads=workers_count,
        where=where,
        row_groups=rowgroup_selector,
        codecs=None if form.stored is None else "petastorm",
        ngram=form.ngram,
        **cache,
    )
    return Reader(data, num_epochs, (shard, count), form)


def _path(url: str | PathLike[str]) -> str:
    text = os.fspath(url)
    # The reader takes addresses as they are; Petastorm's may be quoted.
    return unquote(urlsplit(text).path) if text.startswith("file://") else text
