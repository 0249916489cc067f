"""Makes batches of rows: when they are asked for, or ahead of the step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from . import petastorm
from .ahead import Awaited, Processes, Steps, in_order
from .batch import Batch, Columns
from .transform import TransformedBatch

if TYPE_CHECKING:
    import numpy as np

    from .. import _native

    #: What a user function makes of the columns of a batch.
    Transform = Callable[[Mapping[str, np.ndarray[Any, Any]]], Mapping[str, Any]]


@dataclass(frozen=True)
class Made:
    """What a loader has made of a batch."""

    _batch: _native.Batch
    value: Any


#: A batch, or what a loader has made of one.
B = TypeVar("B", Batch, Made)


@dataclass(frozen=True)
class BatchMaker:
    """Makes batches of the rows of a data set.

    Attributes:
        steps: the steps of the epoch.
        columns: the columns and their forms.
        fields: fields with a codec by name. None without codecs.
        transform: a function of the columns of a batch. None without one.
        transform_workers: number of processes that call it. 0: a thread.
        ahead: number of batches that are decoded and transformed ahead. 0: columns are decoded as they are asked for.
    """

    steps: Steps
    columns: Columns
    fields: dict[str, petastorm.Field] | None
    transform: Transform | None
    transform_workers: int
    ahead: int

    def batches(self) -> Iterator[Batch]:
        """The batches of the rest of the epoch."""
        return self._prepared() if self.ahead else self._given()

    def made(self, begin: Callable[[Batch], Awaited[Any]], ahead: int) -> Iterator[Made]:
        """What a loader makes of the batches of the rest of the epoch, so many of them ahead. They are not transformed.

        Args:
            begin: begins to make something of a batch.
            ahead: number of batches, at least 1.
        """

        def prepare(rows: _native.Batch) -> Awaited[Made]:
            made = begin(self.batch(rows))
            return lambda timeout: Made(rows, made(timeout))

        return in_order(self.steps, prepare, ahead)

    def batch(self, rows: _native.Batch) -> Batch:
        """A batch that is not transformed."""
        return Batch(rows, None if self.fields is None else self._decoded, self.columns)

    def _given(self) -> Iterator[Batch]:
        while (rows := self.steps.take()) is not None:
            batch = self.batch(rows)
            yield batch if self.transform is None else TransformedBatch(batch, self.transform(batch))

    def _prepared(self) -> Iterator[Batch]:
        transform, processes = self.transform, None
        if transform is not None and self.transform_workers:
            processes = Processes(lambda columns: dict(transform(columns)), "transform", self.transform_workers)
            processes.start()
        try:
            # One batch is decoded while the threads of the other one end. A transform is called for one after the other.
            threads = 2 if transform is None else 1
            yield from in_order(self.steps, lambda rows: self._begin(rows, processes), self.ahead, threads)
        finally:
            if processes is not None:
                processes.stop()

    def _begin(self, rows: _native.Batch, processes: Processes | None) -> Awaited[Batch]:
        """Begins to decode and transform rows."""
        batch = self.batch(rows)
        if self.transform is None:
            batch.decode()
            return lambda timeout: batch
        if processes is None:
            transformed = TransformedBatch(batch, self.transform(batch))
            return lambda timeout: transformed
        called = processes.call(dict(batch))
        return lambda timeout: TransformedBatch(batch, called(timeout))

    def _decoded(self, batch: Batch, column: str) -> np.ndarray[Any, Any]:
        # A column of a window has the name "0/name".
        field = (self.fields or {}).get(column.rpartition("/")[2])
        if field is None:
            return batch.stored(column)
        return petastorm.decode(replace(field, name=column), batch, self.columns.kinds[column])
