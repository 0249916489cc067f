"""elasticrun for ``keras``: Horovod's interface, for jobs whose hosts can join or leave.

::

    import elasticrun.keras as hvd

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size())), loss=...)
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    callbacks = [
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=10),
    ]

    @hvd.elastic.run
    def train(state):
        model.fit(data, epochs=24, initial_epoch=state.epoch, steps_per_epoch=100, callbacks=callbacks)

    train(state)

This module supports Keras 3 with TensorFlow as its back end. On a GPU, compile with ``jit_compile=False``.
"""

from __future__ import annotations

import keras

# Before the import of TensorFlow, which may not be installed.
if keras.backend.backend() != "tensorflow":
    raise ImportError(
        f"elasticrun.keras works with TensorFlow as the back end of Keras, but it is {keras.backend.backend()}:"
        " set KERAS_BACKEND=tensorflow; with JAX or torch, use elasticrun or elasticrun.torch in a loop of your own"
    )

from elasticrun._keras import interface
from elasticrun._keras.interface import *  # noqa: F403

from . import callbacks, elastic

__all__ = ["callbacks", "elastic", "load_model"]
__all__ += interface.__all__

load_model = interface.loader(keras)
