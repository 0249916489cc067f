"""How many workers a job on Spark has: what the caller says, else what Spark's configuration says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Counts"]

Setting = Callable[[str, "str | None"], "str | None"]


@dataclass(frozen=True)
class Counts:
    """Workers needed to start, workers below which training waits, and slots that are asked for."""

    num_proc: int
    min_num_proc: int
    max_num_proc: int

    @classmethod
    def of(cls, setting: Setting, parallelism: int, num_proc: int | None, low: int | None, high: int | None) -> Counts:
        """Completes and checks what was given.

        Args:
            setting: looks up a key of Spark's configuration, with a default.
            parallelism: the context's ``defaultParallelism``, in tasks.
            num_proc: workers needed to start, as given.
            low: least workers, as given.
            high: most workers, as given.

        Raises:
            ValueError: they contradict each other, or the most cannot be told.
        """
        dynamic = (setting("spark.dynamicAllocation.enabled", "false") or "").lower() == "true"
        if dynamic:

            def executors(which: str) -> int | None:
                value = setting(f"spark.dynamicAllocation.{which}Executors", None)
                # Spark's own default of the maximum is no number to ask for.
                return int(value) if value and value.isdigit() and int(value) > 0 else None

            most = high if high is not None else executors("max")
            start = num_proc if num_proc is not None else executors("initial") or low or executors("min")
            least = low if low is not None else executors("min")
        else:
            given = setting("spark.default.parallelism", None)
            start = num_proc if num_proc is not None else low or int(given or parallelism)
            most, least = high, low
        if start is None and most is not None:
            start = least or 1
        if most is None and start is not None and not (dynamic and num_proc is None):
            most = start if start >= (least or 0) else least
        if most is None or start is None:
            raise ValueError(
                "max_num_proc: missing, and spark.dynamicAllocation.maxExecutors says nothing: expected the most"
                " workers that the job may have"
            )
        least = min(start, most) if least is None else least
        start = max(start, least) if num_proc is None else start
        start = min(start, most) if num_proc is None else start
        if not 1 <= least <= start <= most:
            raise ValueError(
                f"min_num_proc {least}, num_proc {start}, max_num_proc {most}:"
                " expected 1 <= min_num_proc <= num_proc <= max_num_proc"
            )
        return cls(start, least, most)
