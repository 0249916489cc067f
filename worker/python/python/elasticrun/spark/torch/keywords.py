"""The arguments of the estimator, and its handling of other arguments of Horovod's estimator."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, TypeVar

from pyspark.ml.param import Param, Params, TypeConverters

__all__ = ["REFUSED", "UNUSED", "given", "refuse", "with_accessors"]

T = TypeVar("T", bound=type)

#: Arguments of Horovod's estimator that have no effect here, with the reason.
UNUSED = {
    "callbacks": "Horovod's torch estimator calls none either",
    "categorical_cols": "all columns are feature_cols",
    "continuous_cols": "all columns are feature_cols",
    "inmemory_cache_all": "row groups are read ahead",
    "mp_start_method": "there are no processes of readers",
    "partitions_per_process": "rows are shared out evenly, however they are partitioned",
    "reader_pool_type": "the reader has threads of its own",
    "val_reader_num_workers": "train_reader_num_workers is for both readers",
}

#: Arguments that are not supported, with a replacement.
REFUSED = {
    "backend": "give num_proc, min_num_proc and max_num_proc",
    "compress_sparse_cols": "sparse vectors are written as arrays",
    "data_module": "the reader is elasticrun.data.ParquetDataset; with another one use elasticrun.spark.run",
    "loss_constructors": "give loss: functions and modules travel to the workers",
    "train_minibatch_fn": "write the training function and use elasticrun.spark.run",
    "transformation_edit_fields": "change the data frame before fit",
    "transformation_fn": "change the data frame before fit",
    "transformation_removed_fields": "change the data frame before fit",
}


def refuse(names: Iterable[str]) -> None:
    """Warns of arguments without effect.

    Raises:
        TypeError: an argument is not supported or does not exist.
    """
    for name in names:
        if name in REFUSED:
            raise TypeError(f"TorchEstimator({name}=...): not supported: {REFUSED[name]}")
        if name not in UNUSED:
            raise TypeError(f"TorchEstimator({name}=...): there is no such keyword")
        warnings.warn(f"TorchEstimator({name}=...) makes no difference here: {UNUSED[name]}", stacklevel=4)


def given(keywords: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are not None."""
    return {name: value for name, value in keywords.items() if value is not None}


def with_accessors(cls: T) -> T:
    """Adds ``setBatchSize(value)`` and ``getBatchSize()`` for a parameter ``batch_size``, and so on, as Spark has them."""
    for name, param in list(vars(cls).items()):
        if isinstance(param, Param):
            words = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
            setattr(cls, f"set{words}", _setter(name))
            setattr(cls, f"get{words}", _getter(name))
    return cls


def _setter(name: str) -> Any:
    def set_it(self: Params, value: Any) -> Params:
        return self._set(**{name: value})

    set_it.__doc__ = f"Sets :attr:`{name}`."
    return set_it


def _getter(name: str) -> Any:
    def get_it(self: Params) -> Any:
        param = self.getParam(name)
        return self.getOrDefault(param) if self.isDefined(param) else None

    get_it.__doc__ = f"What :attr:`{name}` is; None if it is not set."
    return get_it


def param(name: str, doc: str, convert: Any = TypeConverters.identity) -> Any:
    """A parameter for a class body, where the class does not exist yet."""
    return Param(Params._dummy(), name, doc, convert)
