"""Functions on NumPy arrays as operations of TensorFlow, eager or in a graph.

All ranks must call collectives in the same order, but TensorFlow runs independent operations in any order. Inside a
``tf.function`` each call therefore reads an ordering variable and writes it back. TensorFlow keeps the program order of accesses
to one variable, also through branches, loops and nested functions. The value of the variable has no meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy
import tensorflow as tf

from . import failures

__all__ = ["Array", "call"]

Array = numpy.ndarray

_ordering: tf.Variable | None = None


def call(
    function: Callable[..., Sequence[Array]],
    inputs: Sequence[tf.Tensor],
    outputs: Sequence[tuple[tf.DType, tf.TensorShape]],
) -> list[tf.Tensor]:
    """Calls ``function`` with the arrays of ``inputs``. In a graph, it is called when the graph runs.

    Args:
        function: takes arrays that it may change, and returns contiguous arrays. In a graph it runs on a thread of
            TensorFlow.
        inputs: tensors in any memory. They are copied to host memory.
        outputs: type and, as far as known, shape of each result.

    Raises:
        NotImplementedError: in a graph that a session of TensorFlow 1 runs.
    """
    if tf.executing_eagerly():
        # numpy() copies.
        results = function(*(numpy.asarray(tensor.numpy()) for tensor in inputs))
        return [tf.convert_to_tensor(result) for result in results]
    return _in_graph(function, inputs, outputs)


def _in_graph(
    function: Callable[..., Sequence[Array]],
    inputs: Sequence[tf.Tensor],
    outputs: Sequence[tuple[tf.DType, tf.TensorShape]],
) -> list[tf.Tensor]:
    ordering = _ordering_variable()

    def run(*arrays: Array) -> list[Array]:
        # The arrays share memory with tensors that other operations may read.
        copies = [numpy.array(array, order="C") for array in arrays[:-1]]
        with failures.remembered():
            return [*function(*copies), arrays[-1]]

    before = ordering.read_value()
    types = [dtype for dtype, _ in outputs]
    *results, after = tf.numpy_function(run, [*inputs, before], [*types, ordering.dtype])
    after.set_shape(())
    ordering.assign(after)
    for result, (_, shape) in zip(results, outputs, strict=True):
        result.set_shape(shape)
    return results


@tf.autograph.experimental.do_not_convert
def _ordering_variable() -> tf.Variable:
    global _ordering
    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise NotImplementedError(
            "collectives in a graph of TensorFlow 1 are not offered: leave eager execution enabled, and use tf.function"
        )
    if _ordering is None:
        # While a tf.function is retraced, its thread refuses new variables, even in an init_scope. Other threads do not.
        with ThreadPoolExecutor(1) as executor:
            _ordering = executor.submit(_new_ordering).result()
    return _ordering


def _new_ordering() -> tf.Variable:
    with tf.device("CPU:0"):
        return tf.Variable(0, trainable=False, dtype=tf.int64, name="elasticrun_turn")
