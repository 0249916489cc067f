"""The average of metrics over all ranks. The subclass adds the base class of its Keras version."""

from __future__ import annotations

from typing import Any

import numpy

from elasticrun import collectives
from elasticrun.ops import Average

from .metric_values import as_floats

__all__ = ["MetricAverage"]


class MetricAverage:
    """Averages the metrics of all ranks at the end of each epoch, for the callbacks that follow.

    All ranks must have the same metrics, of the same shapes. They are averaged in one operation. Values that are no numbers
    or arrays, such as None, stay those of the rank.

    Args:
        device: accepted for Horovod compatibility, without effect.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        metrics = {name: array for name in sorted(logs or {}) if (array := as_floats((logs or {})[name])) is not None}
        if not metrics or logs is None:
            return
        local = numpy.concatenate([array.ravel() for array in metrics.values()])
        averages = collectives.allreduce(local, Average, f"metrics {', '.join(metrics)}")
        first = 0
        for name, array in metrics.items():
            mean = averages[first : first + array.size].reshape(array.shape)
            logs[name] = float(mean) if array.shape == () else mean
            first += array.size
