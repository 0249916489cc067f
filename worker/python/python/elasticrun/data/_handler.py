"""Handlers for data sets in a state."""

from __future__ import annotations

from typing import Any

from ..elastic import register_handler
from .dataset import ParquetDataset
from .mixture import Mixture


class _DataHandler:
    def capture(self, value: ParquetDataset | Mixture) -> object:
        return value._save()

    def restore(self, value: ParquetDataset | Mixture, stored: Any) -> ParquetDataset | Mixture:
        value._restore(stored)
        return value

    def reset(self, value: ParquetDataset | Mixture) -> None:
        """Does nothing: ``enter`` assigns rows, as it runs in all workers."""

    def enter(self, value: ParquetDataset | Mixture) -> None:
        value._enter()

    def agree(self, value: ParquetDataset | Mixture) -> None:
        value._agree()

    def committed(self, value: ParquetDataset | Mixture) -> None:
        value._committed()


def register() -> None:
    """Registers data sets and mixtures with states."""
    for kind in (ParquetDataset, Mixture):
        register_handler(kind, _DataHandler())
