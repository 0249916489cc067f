"""Elastic training with ``model.fit`` of ``keras``."""

from __future__ import annotations

import keras

from elasticrun._keras import elastic as _impl
from elasticrun.tensorflow.elastic import TensorFlowKerasState, run

__all__ = [
    "CommitStateCallback",
    "KeepCallbackStateCallback",
    "KerasState",
    "TensorFlowKerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]

_Callback = keras.callbacks.Callback


class KerasState(TensorFlowKerasState):
    __doc__ = TensorFlowKerasState.__doc__


class CommitStateCallback(_impl.CommitState, _Callback):  # type: ignore[misc, valid-type]
    __doc__ = _impl.CommitState.__doc__


class KeepCallbackStateCallback(_impl.KeepCallbackState, _Callback):  # type: ignore[misc, valid-type]
    __doc__ = _impl.KeepCallbackState.__doc__


class UpdateBatchStateCallback(_impl.UpdateBatchState, _Callback):  # type: ignore[misc, valid-type]
    __doc__ = _impl.UpdateBatchState.__doc__


class UpdateEpochStateCallback(_impl.UpdateEpochState, _Callback):  # type: ignore[misc, valid-type]
    __doc__ = _impl.UpdateEpochState.__doc__
