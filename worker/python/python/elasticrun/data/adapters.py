"""Adapters of data sets for torch and TensorFlow, for code that requires their types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import arguments
from .ahead import Processes
from .batch import Batch, tensors_of
from .dataset import ParquetDataset
from .forms import Pack
from .mixture import Mixture

if TYPE_CHECKING:
    import tensorflow as tf
    import torch

__all__ = ["tf_dataset", "torch_loader"]


def torch_loader(
    data: ParquetDataset | Mixture,
    *,
    num_workers: int = 0,
    collate_fn: Callable[[dict[str, torch.Tensor]], Any] | None = None,
    prefetch_factor: int | None = None,
    persistent_workers: bool = False,
    worker_init_fn: Callable[[int], None] | None = None,
    drop_last: bool = False,
    **options: Any,
) -> torch.utils.data.DataLoader[Any]:
    """A ``DataLoader`` whose batches are those of ``data``: tensors by name, to the end of the epoch, and of the next epoch in the
    next loop. Its length, ``state_dict()`` and ``load_state_dict()`` are those of ``data``.

    Rows count as processed once their batch is returned, also with workers, which work ahead. So no row is lost or repeated if
    the loop stops, if the job resizes, or if a position is stored.

    Args:
        data: its threads read and decode rows.
        num_workers: number of processes, which are forked from this one. They call the ``transform`` of ``data``, make tensors, and
            call ``collate_fn``. 0: all of that happens where ``data`` does it, and ``collate_fn`` in the loop.
        collate_fn: what a batch becomes: a function of its tensors by name.
        prefetch_factor: batches that each worker makes ahead of the step, by default 2.
        persistent_workers: keep the workers when a loop ends.
        worker_init_fn: is called in each worker with its number, from 0.
        drop_last: as ``ParquetDataset(drop_last=True)``, which then holds for ``data``. Before its first round.
        options: further arguments of ``DataLoader``, such as ``pin_memory``.

    Raises:
        StateError: ``drop_last`` comes after the first round of ``data``.
        TypeError: ``batch_size``, ``shuffle`` or a sampler is given, which the data set determines. Or it is ``timeout`` or
            ``multiprocessing_context``.
        ValueError: ``num_workers`` is negative, ``prefetch_factor`` is less than 1, or an option of workers is given without them.
    """
    from torch.utils.data import DataLoader, IterableDataset

    for name in ("batch_size", "shuffle", "sampler", "batch_sampler"):
        if name in options:
            raise TypeError(f"torch_loader({name}=...): that is the data set's, which makes the batches")
    for name in ("timeout", "multiprocessing_context"):
        if name in options:
            raise TypeError(f"torch_loader({name}=...): workers are forked, and a warning names those that hang")
    arguments.count("num_workers", num_workers)
    if num_workers == 0 and (prefetch_factor is not None or persistent_workers or worker_init_fn is not None):
        raise ValueError("prefetch_factor, persistent_workers and worker_init_fn are for num_workers > 0")
    factor = 2 if prefetch_factor is None else prefetch_factor
    if factor < 1:
        raise ValueError(f"prefetch_factor={factor}: must be at least 1")

    parts = data.datasets if isinstance(data, Mixture) else [data]

    class Batches(IterableDataset[Any]):
        def __init__(self) -> None:
            self._processes: Processes | None = None

        def __iter__(self) -> Iterator[Any]:
            if num_workers == 0:
                return (batch.torch() for batch in data)
            data._continue()
            return self._through_workers()

        def _through_workers(self) -> Iterator[Any]:
            if self._processes is None:
                named = "transform" if collate_fn is None else "transform and collate_fn"
                self._processes = Processes(work, named, num_workers, worker_init_fn)
            processes = self._processes
            processes.start()
            try:
                for made in data._made(
                    lambda part, batch: processes.call(columns_of(part, batch)), num_workers * factor
                ):
                    yield made.value
            except (Exception, KeyboardInterrupt):
                # One that hangs would keep this process from its end.
                processes.stop()
                raise
            finally:
                if not persistent_workers:
                    processes.stop()

    class Loader(DataLoader[Any]):
        #: What loops of frameworks take the position from.
        elastic_data = data

        # Not the length of its data set, which torch takes to be the same for ever: it changes with the workers.
        def __len__(self) -> int:
            return len(data)

        # The protocol of torchdata's stateful loaders.
        def state_dict(self) -> dict[str, Any]:
            return data.state_dict()

        def load_state_dict(self, state: dict[str, Any]) -> None:
            data.load_state_dict(state)

    def columns_of(part: ParquetDataset, batch: Batch) -> tuple[int, dict[str, Any]]:
        columns: dict[str, Any] = batch.torch() if part._maker.transform is None else dict(batch)
        return parts.index(part), columns

    # In a worker.
    def work(given: tuple[int, dict[str, Any]]) -> Any:
        index, columns = given
        transform = parts[index]._maker.transform
        if transform is not None:
            columns, left_out = tensors_of(transform(columns))
            parts[index]._maker.columns.of_transform().tell_left_out(left_out)
        return columns if collate_fn is None else collate_fn(columns)

    for part in parts:
        if drop_last and not part._drop_last:
            part._drop_incomplete_steps()
    # The workers have called it.
    in_loop: Any = _as_is if num_workers else collate_fn
    return Loader(Batches(), batch_size=None, num_workers=0, collate_fn=in_loop, **options)


def _as_is(made: Any) -> Any:
    return made


def tf_dataset(data: ParquetDataset) -> tf.data.Dataset:
    """A ``tf.data.Dataset`` whose elements are the batches of ``data``: tensors by name, to the end of the epoch.

    Raises:
        TypeError: TensorFlow does not support the type of a column. Select others with ``columns``.
    """
    import tensorflow as tf

    kinds = {name: _kind(name, kind) for name, kind in data.schema.items()}
    forms = data._maker.columns.forms
    kinds |= {
        further: "int64" if isinstance(forms[name], Pack) else "bool"
        for further, name in data._maker.columns.further.items()
    }
    signature = {name: tf.TensorSpec(shape=None, dtype=kind) for name, kind in kinds.items()}

    def batches() -> Iterator[dict[str, Any]]:
        for batch in data:
            yield {name: batch[name] for name in batch}

    return tf.data.Dataset.from_generator(batches, output_signature=signature)


_NUMBER = re.compile(r"\b(Float|Int|UInt)(8|16|32|64)\b")


def _kind(name: str, kind: str) -> str:
    number = _NUMBER.findall(kind)
    if len(number) == 1 and "Struct" not in kind and "Map" not in kind:
        return "".join(number[0]).lower()
    if kind == "Boolean":
        return "bool"
    if kind in ("Utf8", "LargeUtf8"):
        return "string"
    if "Binary" in kind:
        return "uint8"
    raise TypeError(f"column {name!r} of type {kind} is no tensor: choose other columns")
