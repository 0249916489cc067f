"""The coder of TensorFlow tensors, and the state handler of variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import tensorflow as tf

from elasticrun import codec
from elasticrun.codec import Stored
from elasticrun.elastic import register_handler
from elasticrun.errors import StateError

__all__ = ["assign", "values"]


def values(variables: Sequence[Any]) -> list[tf.Tensor]:
    """The values of variables of TensorFlow or Keras. They share the memory of the variables until those are assigned."""
    return [tf.convert_to_tensor(variable) for variable in variables]


def assign(variables: Sequence[Any], stored: Sequence[tf.Tensor], what: str) -> None:
    """Assigns stored values to variables.

    Raises:
        StateError: number or shapes do not match. The message begins with ``what``.
    """
    if len(variables) != len(stored):
        raise StateError(
            f"{what} has {len(variables)} variables here, but {len(stored)} were stored: build it alike in all workers"
        )
    for variable, value in zip(variables, stored, strict=True):
        if tuple(variable.shape) != tuple(value.shape):
            raise StateError(
                f"{what} has a variable {variable.name!r} of shape {tuple(variable.shape)} here, but one of "
                f"{tuple(value.shape)} was stored: build it alike in all workers"
            )
        variable.assign(value)


class _TensorCoder:
    """Stores eager tensors of numbers. Others are pickled."""

    def encode(self, tensor: Any) -> Stored | None:
        """See :class:`elasticrun.codec.Coder`."""
        if not (tensor.dtype.is_numpy_compatible and tensor.dtype != tf.string):
            return None
        # The memory of the tensor itself if it is host memory. Other memory may have strides, so it is made contiguous.
        array = numpy.asarray(tensor, order="C")
        address = array.__array_interface__["data"][0]
        return Stored((tensor.dtype.name, array.shape), address, array.nbytes, (tensor, array))

    def decode(self, meta: Any, data: memoryview, live: Any | None) -> Any:
        """See :class:`elasticrun.codec.Coder`. Tensors are never filled in place."""
        name, shape = meta
        array = numpy.empty(shape, tf.as_dtype(name).as_numpy_dtype)
        if array.nbytes:
            array.reshape(-1).view(numpy.uint8)[:] = numpy.frombuffer(data, numpy.uint8)
        return tf.convert_to_tensor(array)


class _VariableHandler:
    """Restores a variable by assignment."""

    def capture(self, value: tf.Variable) -> object:
        return values([value])

    def restore(self, value: tf.Variable, stored: Any) -> tf.Variable:
        assign([value], stored, "the state")
        return value

    def reset(self, value: tf.Variable) -> None:
        pass


codec.register(type(tf.constant(0)), "tensorflow", _TensorCoder())
register_handler(tf.Variable, _VariableHandler())
