"""Decides when no slot of a job can be used, so that the job need not wait for its elastic timeout."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .error_text import SlotFailure

__all__ = ["PermanentFailures"]

#: A slot that is held for this many seconds runs. An executor that can run no task fails sooner.
_RUNS_AFTER = 10.0
#: Seconds for which all slots must fail. Within this time, executors that can run tasks may register.
_PATIENCE = 30.0


class PermanentFailures:
    """Slots whose last executor could run no task.

    Such a slot is requested again, and has not failed once it runs on another executor. Nor has a slot failed that has never been
    granted, so the job waits for it. Once a slot has run, the executors are of use, and no later failure ends the job: the slot may
    have lost its executor, and hosts that can run tasks may come back.

    All times are seconds of one clock, which never goes backwards.
    """

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        #: Whether a slot has run.
        self._has_run = False
        #: When all slots were first found to have failed; None while one may be used.
        self._since: float | None = None

    def add(self, slot: int, failure: SlotFailure, held_for: float = 0.0) -> None:
        """Records that a slot was lost before or while its service ran on an executor.

        Args:
            slot: the slot.
            failure: why it was lost.
            held_for: seconds for which its task ran; 0 if it did not.
        """
        if failure.permanent:
            # Its task may have waited long for files before its service could not run.
            self._texts[slot] = failure.text
            return
        self._has_run = self._has_run or held_for >= _RUNS_AFTER
        self._texts.pop(slot, None)

    def add_served(self, slot: int) -> None:
        """Records that the service of a slot has run, and has ended by itself."""
        self._has_run = True
        self._texts.pop(slot, None)

    def has_failed(self, slot: int, held_for: float) -> bool:
        """Whether the last executor of a slot could run no task.

        Args:
            slot: the slot.
            held_for: seconds since an executor began to run its task; 0 if none does.
        """
        return slot in self._texts and held_for < _RUNS_AFTER

    def reason(self, requested: Collection[int], held: Mapping[int, float], now: float) -> str | None:
        """Why no slot can be used; None if one may be. To be called after each failure.

        Args:
            requested: the slots that the job asks for.
            held: when executors began to run the tasks of slots. Slots that no executor runs are left out.
            now: the time.
        """
        if self._has_run or not requested:
            return None
        if not all(self.has_failed(slot, now - held.get(slot, now)) for slot in requested):
            self._since = None
            return None
        if self._since is None:
            self._since = now
        deadline = self._since + _PATIENCE
        # The tasks that began before the deadline are waited for: each fails, or turns out to run.
        if now < deadline or any(held.get(slot, deadline) < deadline for slot in requested):
            return None
        return self._texts[max(requested)]
