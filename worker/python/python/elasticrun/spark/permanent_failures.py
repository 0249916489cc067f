"""Decides when no slot of a job can ever be used, so that the job need not wait for its elastic timeout."""

from __future__ import annotations

from collections.abc import Collection

from .error_text import SlotFailure

__all__ = ["PermanentFailures"]


class PermanentFailures:
    """Slots whose last executor could run no task.

    A slot that is pending or runs has not failed, so the job waits for it. Once a slot has run, the executors are of use, and no
    later failure ends the job.
    """

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._ran = False

    def add(self, slot: int, failure: SlotFailure) -> None:
        """Records that a slot was lost before or while its service ran on an executor."""
        if failure.permanent:
            self._texts[slot] = failure.text
        else:
            self._texts.pop(slot, None)

    def add_served(self) -> None:
        """Records that the service of a slot has run."""
        self._ran = True

    def __contains__(self, slot: int) -> bool:
        """Whether the last executor of a slot could run no task."""
        return slot in self._texts

    def reason(self, requested: Collection[int]) -> str | None:
        """Why no slot among ``requested`` can be used; None if one may be."""
        if self._ran or not requested or any(slot not in self._texts for slot in requested):
            return None
        return self._texts[max(requested)]
