"""Elastic data: Parquet data sets for elastic jobs. Each row of an epoch is used exactly once, through failures and resizes.

    from elasticrun.data import ParquetDataset

    data = ParquetDataset("/data/train", batch_size=256, seed=1)
    state = ObjectState(weights=weights, data=data)

    @elasticrun.elastic.run
    def train(state):
        for epoch in state.data.epochs(10):
            for batch in state.data:
                step(state.weights, batch["features"], batch["label"])
                state.commit()

The data set is part of the state: its position is committed with the model, and rolled back with it.
"""

from __future__ import annotations

from . import _handler
from .adapters import tf_dataset, torch_loader
from .batch import Batch
from .dataset import ParquetDataset
from .forms import Fill, Image, Nest, Pack, Pad
from .mixture import Mixture, WeightedSamplingReader
from .ngram import NGram
from .progress import Progress
from .readers import Reader, make_batch_reader, make_reader
from .selectors import IntersectIndexSelector, RowGroup, SingleIndexSelector, UnionIndexSelector
from .transform import TransformSpec, edit_field

__all__ = [
    "Batch",
    "Fill",
    "Image",
    "IntersectIndexSelector",
    "Mixture",
    "NGram",
    "Nest",
    "Pack",
    "Pad",
    "ParquetDataset",
    "Progress",
    "Reader",
    "RowGroup",
    "SingleIndexSelector",
    "TransformSpec",
    "UnionIndexSelector",
    "WeightedSamplingReader",
    "edit_field",
    "make_batch_reader",
    "make_reader",
    "tf_dataset",
    "torch_loader",
]

_handler.register()
