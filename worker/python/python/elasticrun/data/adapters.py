"""Adapters of data sets for torch and TensorFlow, for code that requires their types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .dataset import ParquetDataset
from .forms import Pack

if TYPE_CHECKING:
    import tensorflow as tf
    import torch

__all__ = ["tf_dataset", "torch_loader"]


def torch_loader(
    data: ParquetDataset, *, drop_last: bool = False, **options: Any
) -> torch.utils.data.DataLoader[dict[str, torch.Tensor]]:
    """A ``DataLoader`` whose batches are those of ``data``: tensors by name, to the end of the epoch, and of the next epoch in the
    next loop. Its length, ``state_dict()`` and ``load_state_dict()`` are those of ``data``.

    Args:
        data: its threads read and decode rows, and its ``transform_workers`` transform them, so the loader needs no processes.
        drop_last: as ``ParquetDataset(drop_last=True)``, which then holds for ``data``. Before its first round.
        options: further arguments of ``DataLoader``, such as ``pin_memory`` and ``collate_fn``, which gets the tensors of a batch.
            Those for batches and processes are not allowed.

    Raises:
        StateError: ``drop_last`` comes after the first round of ``data``.
        TypeError: ``batch_size``, ``num_workers``, ``shuffle`` or a sampler is given. The data set determines these.
    """
    from torch.utils.data import DataLoader, IterableDataset

    class Batches(IterableDataset[dict[str, Any]]):
        def __iter__(self) -> Iterator[dict[str, Any]]:
            return (batch.torch() for batch in data)

    class Loader(DataLoader[dict[str, Any]]):
        # Not the length of its data set, which torch takes to be the same for ever: it changes with the workers.
        def __len__(self) -> int:
            return len(data)

        # The protocol of torchdata's stateful loaders.
        def state_dict(self) -> dict[str, Any]:
            return data.state_dict()

        def load_state_dict(self, state: dict[str, Any]) -> None:
            data.load_state_dict(state)

    for name in ("batch_size", "num_workers", "shuffle", "sampler", "batch_sampler"):
        if name in options:
            raise TypeError(f"torch_loader({name}=...): that is the data set's, which makes the batches")
    if drop_last and not data._drop_last:
        data._drop_incomplete_steps()
    return Loader(Batches(), batch_size=None, num_workers=0, **options)


def tf_dataset(data: ParquetDataset) -> tf.data.Dataset:
    """A ``tf.data.Dataset`` whose elements are the batches of ``data``: tensors by name, to the end of the epoch.

    Raises:
        TypeError: TensorFlow does not support the type of a column. Select others with ``columns``.
    """
    import tensorflow as tf

    kinds = {name: _kind(name, kind) for name, kind in data.schema.items()}
    forms = data._columns.forms
    kinds |= {
        further: "int64" if isinstance(forms[name], Pack) else "bool" for further, name in data._columns.further.items()
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
