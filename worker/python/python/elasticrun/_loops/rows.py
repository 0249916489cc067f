"""Batches of a data set of ``elasticrun.data`` in the training loop of a framework."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from elasticrun.data import Mixture, ParquetDataset


class RowBatches:
    """The batches of a data set: what :class:`~.batches.ElasticBatches` is for samples.

    The data set itself moves with each batch that it returns. So commits are made between the step and the next batch, and nothing
    reads ahead in between.

    Args:
        data: the rows.
    """

    def __init__(self, data: ParquetDataset | Mixture) -> None:
        self._data = data
        #: Steps of this epoch that are done, with any number of workers.
        self.done = 0
        #: The position of the last agreement.
        self._agreed: Any = None

    @property
    def epoch(self) -> int:
        """The epoch of the position."""
        return self._data.epoch

    @property
    def remaining(self) -> int:
        """Steps from the position to the end of the epoch, with the current workers."""
        return self._data._steps_left()

    @property
    def steps_of_epoch(self) -> int:
        """Steps of a whole epoch with the current workers."""
        return self._data._steps_of_epoch()

    def __len__(self) -> int:
        """Steps of this epoch: those that are done, and those that remain."""
        return self.done + self.remaining

    def advance(self, steps: int = 1) -> None:
        """Counts steps that all workers have done."""
        self.done += steps

    def go_to(self, epoch: int) -> None:
        """Goes to the start of a later epoch."""
        while self._data.epoch < epoch:
            self._data.next_epoch()
            self.done = 0

    def enter(self) -> None:
        """Divides the rows that are left among the workers of the round. All of them call it."""
        self._data._enter()
        self._agreed = self._data._save()

    def agree(self) -> None:
        """Before a commit: tells each worker what the others have read. All of them call it."""
        self._data._agree()
        self._agreed = self._data._save()

    def committed(self) -> None:
        """After a commit."""
        self._data._committed()

    def state_dict(self) -> dict[str, Any]:
        """The position of the last agreement, and the number of steps that have led to it."""
        return {"rows": self._agreed, "done": self.done}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes to a position. The workers then enter again."""
        self._data._restore(state_dict["rows"])
        self.done = state_dict["done"]


def data_of(loader: Any) -> ParquetDataset | Mixture | None:
    """The data set behind a loader of :func:`elasticrun.data.torch_loader`."""
    data = getattr(loader, "elastic_data", None)
    return data if isinstance(data, (ParquetDataset, Mixture)) else None


class RowLoader(DataLoader[Any]):
    """A loader of a data set, whose length is that of the whole epoch.

    Args:
        loader: the loader of the user.
        batches: the position in its data set.
    """

    def __init__(self, loader: DataLoader[Any], batches: RowBatches) -> None:
        super().__init__(
            loader.dataset,
            batch_size=None,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
        )
        #: The loader of the user.
        self.original = loader
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        return self._batches.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes to a position, in all workers at once."""
        if state_dict != self._batches.state_dict():
            self._batches.load_state_dict(state_dict)
            self._batches.enter()
