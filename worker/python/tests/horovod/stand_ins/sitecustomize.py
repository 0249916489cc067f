"""Has Keras load digits where a script asks for MNIST, and gives TensorFlow the names that scripts for 1.x take.

Python imports this module by itself, before the script, when its directory is on the PYTHONPATH.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def _serve_digits(mnist: ModuleType) -> None:
    """Images of 8 x 8, so that what scripts train for hours on a GPU takes a minute on a processor."""

    def load_data(path: str = "mnist.npz") -> tuple[Any, Any]:
        import digits

        return digits.split(train=True), digits.split(train=False)

    mnist.load_data = load_data  # type: ignore[attr-defined]


def _name_sessions(tensorflow: Any) -> None:
    """What TensorFlow 2 has under `compat.v1` only."""
    tensorflow.ConfigProto = tensorflow.compat.v1.ConfigProto
    tensorflow.Session = tensorflow.compat.v1.Session


def _take_sessions(backend: Any) -> None:
    """Keras 2 has no sessions in TensorFlow 2, so there is none to set."""
    backend.set_session = lambda session: None


CHANGES: dict[str, Callable[[Any], None]] = {
    "keras.src.datasets.mnist": _serve_digits,
    "tf_keras.src.datasets.mnist": _serve_digits,
    "tensorflow": _name_sessions,
    "tf_keras.api._v2.keras.backend": _take_sessions,
}


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds these modules as ever, and changes what is loaded."""

    def __init__(self) -> None:
        self._loaders: dict[str, Any] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See importlib."""
        if name not in CHANGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            self._loaders[name] = spec.loader
            spec.loader = self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """See importlib."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """See importlib."""
        self._loaders[module.__name__].exec_module(module)
        CHANGES[module.__name__](module)


sys.meta_path.insert(0, _Changed())
