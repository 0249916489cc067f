"""Classifies errors of TensorFlow graphs, in which a collective may have failed.

TensorFlow replaces an exception of a Python function in a graph by its own. This module remembers the original, so that the
training loop receives it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from elasticrun.errors import ElasticrunError

__all__ = ["classify", "remembered", "translated"]

#: The newest error of a function in a graph.
_newest: ElasticrunError | None = None


@contextmanager
def remembered() -> Iterator[None]:
    """Remembers an exception of the block, for :func:`classify`."""
    global _newest
    try:
        yield
    except ElasticrunError as error:
        _newest = error
        raise


def classify(error: tf.errors.OpError) -> Exception:
    """The exception of a collective in the graph, if ``error`` replaces one; else ``error`` itself.

    A graph that XLA cannot compile because of a collective is a ValueError.
    """
    global _newest
    if _is_uncompilable(str(error)):
        return ValueError(
            "XLA cannot compile collectives: leave jit_compile=True out of the tf.function that calls them, such as that with"
            " the DistributedGradientTape"
        )
    cause = _newest
    if cause is None or type(cause).__name__ not in str(error):
        return error
    _newest = None
    return cause


def _is_uncompilable(text: str) -> bool:
    # Collectives are Python functions in the graph.
    return "Detected unsupported operations" in text and "PyFunc" in text


@contextmanager
def translated() -> Iterator[None]:
    """Raises the exception of a collective in a graph instead of TensorFlow's replacement."""
    try:
        yield
    except tf.errors.OpError as error:
        cause = classify(error)
        if cause is error:
            raise
        raise cause from error
