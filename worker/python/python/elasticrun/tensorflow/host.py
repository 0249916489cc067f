"""Functions of NumPy arrays as operations of TensorFlow, at once or in a graph.

Collectives are called by all ranks in the same order. TensorFlow runs what does not depend on each other in
any order, so inside a ``tf.function`` each call reads a variable and writes it back: TensorFlow keeps the
program's order of what touches one variable, also through branches, loops and functions that call functions.
The variable's value means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy
import tensorflow as tf

from . import failures

__all__ = ["Array", "call"]

Array = numpy.ndarray

_turn: tf.Variable | None = None


def call(
    function: Callable[..., Sequence[Array]],
    inputs: Sequence[tf.Tensor],
    outputs: Sequence[tuple[tf.DType, tf.TensorShape]],
) -> list[tf.Tensor]:
    """What ``function`` gives for the arrays of ``inputs``; in a graph, when that runs.

    Args:
        function: gets arrays that it may change, and gives contiguous ones. Runs in a thread of TensorFlow's
            when a graph runs.
        inputs: tensors in any memory; they are copied to the host's.
        outputs: type and shape of each result, as far as known.

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
    turn = _turn_variable()

    def run(*arrays: Array) -> list[Array]:
        # The memory is that of the tensors, which others may read.
        own = [numpy.array(array, order="C") for array in arrays[:-1]]
        with failures.remembered():
            return [*function(*own), arrays[-1]]

    before = turn.read_value()
    types = [dtype for dtype, _ in outputs]
    *results, after = tf.numpy_function(run, [*inputs, before], [*types, turn.dtype])
    after.set_shape(())
    turn.assign(after)
    for result, (_, shape) in zip(results, outputs, strict=True):
        result.set_shape(shape)
    return results


@tf.autograph.experimental.do_not_convert
def _turn_variable() -> tf.Variable:
    global _turn
    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise NotImplementedError(
            "collectives in a graph of TensorFlow 1 are not offered: leave eager execution enabled, and use tf.function"
        )
    if _turn is None:
        # A tf.function that is traced again refuses new variables, even in an init_scope, but only in its thread.
        with ThreadPoolExecutor(1) as elsewhere:
            _turn = elsewhere.submit(_new_turn).result()
    return _turn


def _new_turn() -> tf.Variable:
    with tf.device("CPU:0"):
        return tf.Variable(0, trainable=False, dtype=tf.int64, name="elasticrun_turn")
