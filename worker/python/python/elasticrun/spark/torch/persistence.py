"""Saves and loads estimators and models: Spark's metadata, and a pickle of values that JSON cannot represent."""

from __future__ import annotations

import json
import pickle
from typing import Any

from pyspark import cloudpickle
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter

from .. import store

__all__ = ["Persistent"]

#: The file with values that JSON cannot represent.
_OBJECTS = "objects.pkl"


class Persistent(MLReadable, MLWritable):
    """Makes parameters with values of any type persistent, also in stages of pipelines.

    Loading can execute code from the file, as with ``pickle``: load only files that you trust.
    """

    def write(self) -> MLWriter:
        """A writer of this object. ``write().overwrite().save(path)`` replaces existing files."""
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader:
        """A reader of this class."""
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
        """Loads a saved object.

        Raises:
            ValueError: the path contains an object of another class.
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
