"""Numbers of workers of a job on Spark, from the caller or from Spark's configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Counts"]

Setting = Callable[[str, "str | None"], "str | None"]


@dataclass(frozen=True)
class Counts:
    """Workers needed to start, minimum workers below which training pauses, and the number of slots to request."""

    num_proc: int
    min_num_proc: int
    max_num_proc: int

    @classmethod
    def from_settings(
        cls, setting: Setting, parallelism: int, num_proc: int | None, low: int | None, high: int | None
    ) -> Counts:
        """Checks the given numbers, and adds defaults.

        Args:
            setting: function that looks up a key of Spark's configuration, with a default.
            parallelism: ``defaultParallelism`` of the context, in tasks.
            num_proc: given number of workers needed to start.
            low: given minimum of workers.
            high: given maximum of workers.

        Raises:
            ValueError: the numbers contradict each other, or the maximum is unknown.
        """
        dynamic = (setting("spark.dynamicAllocation.enabled", "false") or "").lower() == "true"
        if dynamic:

            def executors(which: str) -> int | None:
                value = setting(f"spark.dynamicAllocation.{which}Executors", None)
                # Spark's default maximum is unlimited, which is not a number of slots to request.
                return int(value) if value and value.isdigit() and int(value) > 0 else None

            max_workers = high if high is not None else executors("max")
            start = num_proc if num_proc is not None else executors("initial") or low or executors("min")
            min_workers = low if low is not None else executors("min")
        else:
            given = setting("spark.default.parallelism", None)
            start = num_proc if num_proc is not None else low or int(given or parallelism)
            max_workers, min_workers = high, low
        if start is None and max_workers is not None:
            start = min_workers or 1
        if max_workers is None and start is not None and not (dynamic and num_proc is None):
            max_workers = start if start >= (min_workers or 0) else min_workers
        if max_workers is None or start is None:
            raise ValueError(
                "max_num_proc: missing, and spark.dynamicAllocation.maxExecutors says nothing: expected the most"
                " workers that the job may have"
            )
        min_workers = min(start, max_workers) if min_workers is None else min_workers
        start = max(start, min_workers) if num_proc is None else start
        start = min(start, max_workers) if num_proc is None else start
        if not 1 <= min_workers <= start <= max_workers:
            raise ValueError(
                f"min_num_proc {min_workers}, num_proc {start}, max_num_proc {max_workers}:"
                " expected 1 <= min_num_proc <= num_proc <= max_num_proc"
            )
        return cls(start, min_workers, max_workers)
