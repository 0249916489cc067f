"""Readers with Petastorm's interface: scripts only change an import.

    from elasticrun.data import make_batch_reader

    with make_batch_reader("file:///data/train", num_epochs=1, cur_shard=rank, shard_count=size) as reader:
        for rows in reader:
            train(rows.features, rows.label)

They are not elastic: shards are fixed from the first to the last epoch. docs/migrate-from-petastorm.md describes what
:class:`ParquetDataset` adds. Errors of Petastorm are not reproduced. The seed determines the rows of a shard and their order.
Shards are even to the row, so none of them hangs or drops rows at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

from .. import _native
from . import petastorm, petastorm_args
from .dataset import ParquetDataset
from .ngram import NGram
from .output_schema import OutputSchema

if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType

__all__ = ["Reader", "make_batch_reader", "make_reader"]

Source: TypeAlias = "str | PathLike[str] | Sequence[str | PathLike[str]]"


class Reader:
    """Rows or batches as named tuples. Iterating returns all epochs, and again after :meth:`reset`.

    Attributes:
        last_row_consumed: whether the last epoch has finished.
        batched_output: whether a tuple holds arrays with one value for each row.
        ngram: windows in place of rows, if any: dictionaries of named tuples.
    """

    def __init__(
        self, data: ParquetDataset, epochs: int | None, workers: tuple[int, int], output: OutputSchema
    ) -> None:
        self._data = data
        self._epochs = epochs
        self._shard = workers
        self._first = 0
        self._rows: Iterator[Any] | None = None
        self._output = output
        self.batched_output = output.batched
        self.ngram = output.ngram
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
        """Restarts with the next epoch, for the same number of epochs. The rest of the current epoch is not read."""
        self._data.next_epoch()
        self._first = self._data.epoch
        self._rows = None
        self.last_row_consumed = False

    def stop(self) -> None:
        """Ends the iteration."""
        self._rows = iter(())

    def join(self) -> None:
        """Does nothing: threads end with the reader."""

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
                yield from self._output.rows(batch)
            if self._epochs is not None and self._data.epoch + 1 == self._first + self._epochs:
                break
            self._data.next_epoch()
        self.last_row_consumed = True


def make_reader(dataset_url: Source, schema_fields: Sequence[Any] | NGram | None = None, **options: Any) -> Reader:
    """Rows one by one, each a named tuple of values and arrays. The codecs of a Petastorm data set are decoded. Arguments as for
    :func:`make_batch_reader`."""
    return _reader(dataset_url, schema_fields, batched=False, **options)


def make_batch_reader(
    dataset_url_or_urls: Source, schema_fields: Sequence[Any] | NGram | None = None, **options: Any
) -> Reader:
    """Batches of rows, each a named tuple of arrays with the stored values.

    Args:
        dataset_url_or_urls: a path, a ``file://``, ``s3://`` or ``gs://`` URL, or several.
        schema_fields: names of columns, patterns that match whole names, or fields of a schema; by default all. Or an
            :class:`NGram` for windows of rows.
        batch_size: rows of a batch, by default 1024.
        num_epochs: number of epochs, by default 1; None for an endless reader.
        shuffle_row_groups, shuffle_rows: whether the order is random, and different in each epoch; by default both. Rows are
            shuffled if either is set.
        seed: key of the order, by default 0.
        cur_shard, shard_count: the shard to read, and the number of shards.
        workers_count: number of threads that read and decode.
        predicate: a Petastorm predicate, or any object with ``get_fields`` and ``do_include``. ``in_set`` is pushed down.
        filters: conditions like those of pyarrow: see ``ParquetDataset(where=...)``.
        rowgroup_selector: a selector over an index that Petastorm built.
        transform_spec: a :class:`TransformSpec`, or Petastorm's class.
        cache_type, cache_location, cache_size_limit: "local-disk" caches remote files in a directory.
        shuffling_queue_capacity: size of the shuffle buffer.
        memory: limit for row groups in memory.

    Raises:
        TypeError: an argument is unknown to both elasticrun and Petastorm.
        ValueError: an argument is invalid, or names something that does not exist.
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
    output = OutputSchema(batched, None if batched else petastorm.read_schema(places), transform_spec)
    output.choose(fields, _native.columns(places), predicate)
    where, output.predicate = output.conditions(predicate, filters)
    data = ParquetDataset(
        places,
        batch_size=batch_size,
        columns=output.columns,
        shuffle=shuffle_row_groups or shuffle_rows,
        seed=chosen or 0,
        shuffle_rows=shuffling_queue_capacity,
        memory=memory,
        threads=workers_count,
        where=where,
        row_groups=rowgroup_selector,
        codecs=None if output.stored is None else "petastorm",
        ngram=output.ngram,
        **cache,
    )
    # As in Petastorm.
    data._maker.columns.objects = True
    return Reader(data, num_epochs, (shard, count), output)


def _path(url: str | PathLike[str]) -> str:
    text = os.fspath(url)
    # Petastorm's URLs may be quoted, and paths must not be.
    return unquote(urlsplit(text).path) if text.startswith("file://") else text
