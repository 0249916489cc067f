"""Callbacks for ``model.fit`` of ``tf.keras``."""

from __future__ import annotations

from tensorflow import keras

from elasticrun._keras import callbacks as _impl

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]

_Callback = keras.callbacks.Callback


class BroadcastGlobalVariablesCallback(_impl.BroadcastGlobalVariables, _Callback):  # type: ignore[misc, valid-type]
    __doc__ = _impl.BroadcastGlobalVariables.__doc__


class MetricAverageCallback(_impl.MetricAverage, _Callback):  # type: ignore[misc, valid-type]
    __doc__ = _impl.MetricAverage.__doc__


class LearningRateScheduleCallback(_impl.LearningRateSchedule, _Callback):  # type: ignore[misc, valid-type]
    __doc__ = _impl.LearningRateSchedule.__doc__


class LearningRateWarmupCallback(_impl.LearningRateWarmup, _Callback):  # type: ignore[misc, valid-type]
    __doc__ = _impl.LearningRateWarmup.__doc__
