"""Data sets in a state."""

from __future__ import annotations

from typing import Any

from ..elastic import register_handler
from .dataset import ParquetDataset


class _DataHandler:
    def capture(self, value: ParquetDataset) -> object:
        return value._save()

    def restore(self, value: ParquetDataset, stored: Any) -> ParquetDataset:
        value._restore(stored)
        return value

    def reset(self, value: ParquetDataset) -> None:
        """Rows are handed out in ``enter``, where all workers are."""

    def enter(self, value: ParquetDataset) -> None:
        value._enter()

    def agree(self, value: ParquetDataset) -> None:
        value._agree()


    def committed(self, value: ParquetDataset) -> None:
        value._committed()


def register() -> None:
    """Has states keep data sets."""
    register_handler(ParquetDataset, _DataHandler())
