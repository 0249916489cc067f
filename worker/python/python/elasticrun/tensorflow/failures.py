"""What an error of TensorFlow means: that the round is over, or what it says.

TensorFlow makes an error of its own of what a Python function in a graph raises. What the function raised is
remembered here, so that the training loop gets it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from elasticrun.errors import ElasticrunError

__all__ = ["judge", "remembered", "translated"]

#: The newest error of a function in a graph.
_newest: ElasticrunError | None = None


@contextmanager
def remembered() -> Iterator[None]:
    """Remembers what is raised within, for :func:`judge`."""
    global _newest
    try:
        yield
    except ElasticrunError as error:
        _newest = error
        raise


def judge(error: tf.errors.OpError) -> Exception:
    """The error that a collective in the graph raised if ``error`` came of one, else ``error`` itself."""
    global _newest
    cause = _newest
    if cause is None or type(cause).__name__ not in str(error):
        return error
    _newest = None
    return cause


@contextmanager
def translated() -> Iterator[None]:
    """Raises what a collective in a graph raised, where TensorFlow raises an error of its own for it."""
    try:
        yield
    except tf.errors.OpError as error:
        cause = judge(error)
        if cause is error:
            raise
        raise cause from error
