"""What ``self.log(..., on_epoch=True)`` has summed up in the epoch under way, which Lightning's checkpoints do not contain.

All workers continue with the sums of rank 0. So the mean of an epoch with a change of the workers counts the batches before the
change with the values of rank 0.
"""

from __future__ import annotations

from typing import Any

#: Sums by the key of the metric.
Sums = dict[str, dict[str, Any]]


def capture(results: Any) -> Sums:
    """The sums of a collection of results."""
    return {
        key: {name: getattr(metric, name) for name in ("value", "cumulated_batch_size") if hasattr(metric, name)}
        for key, metric in results.items()
        if metric.is_tensor and metric.meta.on_epoch and not metric.has_reset
    }


def restore(results: Any, sums: Sums) -> None:
    """Has each metric begin with its sums when it is logged for the first time."""
    left = dict(sums)
    original = results.update_metrics

    def update_metrics(key: str, value: Any, batch_size: int) -> None:
        metric = results[key]
        for name, stored in left.pop(key, {}).items():
            setattr(metric, name, stored.to(getattr(metric, name).device))
        original(key, value, batch_size)

    if left:
        results.update_metrics = update_metrics
