"""Elastic data: Parquet data sets, each row of an epoch read exactly once, whatever happens to the workers.

    from elasticrun.data import ParquetDataset

    data = ParquetDataset("/data/train", batch_size=256, seed=1)
    state = ObjectState(weights=weights, data=data)

    @elasticrun.elastic.run
    def train(state):
        for epoch in state.data.epochs(10):
            for batch in state.data:
                step(state.weights, batch["features"], batch["label"])
                state.commit()

The data set is a part of the state: what is processed is committed together with the model, and rolled back with it.
"""

from __future__ import annotations

from . import _handler
from .adapters import tf_dataset, torch_loader
from .batch import Batch
from .dataset import ParquetDataset
from .progress import Progress
from .readers import Reader, make_batch_reader, make_reader

__all__ = ["Batch", "ParquetDataset", "Progress", "Reader", "make_batch_reader", "make_reader", "tf_dataset", "torch_loader"]

_handler.register()
