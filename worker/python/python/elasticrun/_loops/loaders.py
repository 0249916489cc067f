"""Reads a data loader of torch, to make an elastic one of the same data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from elasticrun.errors import StateError
from elasticrun.sampler import ElasticSampler

from .batches import ElasticBatches

#: Arguments of a data loader that do not depend on its batches.
_KEPT = (
    "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
    "prefetch_factor", "persistent_workers", "pin_memory_device", "in_order",
)  # fmt: skip

_SUPPORTED = (
    "a DataLoader whose data set has a length, with a batch_size and with shuffle=True or False (or a RandomSampler,"
    " SequentialSampler or DistributedSampler)"
)


@dataclass(frozen=True)
class Order:
    """Which samples a loader visits in what batches."""

    samples: int
    shuffle: bool
    batch_size: int
    drop_last: bool

    def sampler(self, seed: int) -> ElasticSampler:
        """The position in these samples, at the start of the first epoch."""
        return ElasticSampler(self.samples, shuffle=self.shuffle, seed=seed)

    def batches(self, sampler: ElasticSampler) -> ElasticBatches:
        """Batches from the position of ``sampler``."""
        return ElasticBatches(sampler, self.batch_size, self.drop_last)


def order_of(loader: Any) -> Order:
    """The order of a loader, which may already be divided among processes by its framework.

    Raises:
        StateError: its position cannot be a part of the state.
    """
    if not isinstance(loader, DataLoader):
        raise _unsupported(f"a {type(loader).__name__}")
    if isinstance(loader.dataset, IterableDataset):
        raise _unsupported("an IterableDataset, which has no position")
    batches: Any = loader.batch_sampler
    # Accelerate and Lightning wrap what the user has given.
    while hasattr(batches, "batch_sampler"):
        batches = batches.batch_sampler
    if batches is None:
        raise _unsupported("a DataLoader without a batch_size")
    if type(batches) is not BatchSampler:
        raise _unsupported(f"a DataLoader with the batch sampler {type(batches).__name__}")
    data: Any = loader.dataset
    return Order(len(data), _shuffle(batches.sampler), batches.batch_size, batches.drop_last)


def arguments(loader: Any) -> dict[str, Any]:
    """The arguments with which ``DataLoader(dataset, batch_sampler=..., **arguments)`` makes a loader like this one."""
    return {name: getattr(loader, name) for name in _KEPT if hasattr(loader, name)}


def _shuffle(sampler: Any) -> bool:
    if isinstance(sampler, DistributedSampler):
        return bool(sampler.shuffle)
    if isinstance(sampler, SequentialSampler):
        return False
    if isinstance(sampler, RandomSampler):
        if sampler.replacement or sampler.num_samples != len(sampler.data_source):
            raise _unsupported("a RandomSampler that does not visit each sample once (replacement, num_samples)")
        return True
    raise _unsupported(f"the sampler {type(sampler).__name__}")


def _unsupported(what: str) -> StateError:
    return StateError(f"the training data is {what}: elastic training needs {_SUPPORTED}")
