"""Saves estimators and models, and loads them: Spark's metadata, and beside it what is no JSON, pickled."""

from __future__ import annotations

import json
import pickle
from typing import Any

from pyspark import cloudpickle
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter

from .. import store

__all__ = ["Persistent"]

#: The file with what is no JSON.
_OBJECTS = "objects.pkl"


class Persistent(MLReadable, MLWritable):
    """Parameters with values of any kind can be saved, also as stages of pipelines.

    Loading runs code of what is loaded, as ``torch.load`` and ``pickle`` do: load only what you trust.
    """

    def write(self) -> MLWriter:
        """What saves this; ``write().overwrite().save(path)`` replaces what is there."""
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader:
        """What loads one."""
        return _Reader(cls)


class _Writer(MLWriter):
    def __init__(self, instance: Any) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:  # Spark's name
        values = {param.name: value for param, value in self._instance._paramMap.items()}
        plain = {name: value for name, value in values.items() if _is_plain(value)}
        others = {name: value for name, value in values.items() if name not in plain}
        try:
            pickled = cloudpickle.dumps(others)
        except Exception as error:
            raise TypeError(f"{type(self._instance).__name__} cannot be saved: {', '.join(others)}: {error}") from error
        DefaultParamsWriter.saveMetadata(self._instance, path, self.sc, paramMap=plain)
        store.write(self.sparkSession, f"{path.rstrip('/')}/{_OBJECTS}", pickled)


class _Reader(MLReader):
    def __init__(self, cls: Any) -> None:
        super().__init__()
        self._cls = cls

    def load(self, path: str) -> Any:
        """One that was saved.

        Raises:
            ValueError: what is there is something else.
        """
        metadata = DefaultParamsReader.loadMetadata(path, self.sc)
        name = f"{self._cls.__module__}.{self._cls.__name__}"
        if metadata["class"] != name:
            raise ValueError(f"{path}: is a {metadata['class']}: expected a {name}")
        pickled = store.read(self.sparkSession, f"{path.rstrip('/')}/{_OBJECTS}")
        if pickled is None:
            raise ValueError(f"{path}: has no {_OBJECTS}: expected what {self._cls.__name__}.save wrote")
        instance = self._cls()
        instance._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(instance, metadata)
        instance._set(**pickle.loads(pickled))
        return instance


def _is_plain(value: object) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False
