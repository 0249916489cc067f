"""Which optimizer steps are committed."""

from __future__ import annotations


class Intervals:
    """Counts steps to the next commit, in the same way in all workers.

    Args:
        steps: optimizer steps between two commits.

    Raises:
        ValueError: ``steps`` is less than 1.
    """

    def __init__(self, steps: int) -> None:
        if steps < 1:
            raise ValueError(f"steps_per_commit={steps}: must be at least 1")
        self._steps = steps
        self._since = 0

    def begin(self) -> None:
        """Begins to count anew, in a new round."""
        self._since = 0

    def due(self, last: bool) -> bool:
        """Counts a step. Returns whether it is committed: each ``steps``-th one, and the ``last`` one of an epoch."""
        self._since += 1
        if not last and self._since < self._steps:
            return False
        self._since = 0
        return True
