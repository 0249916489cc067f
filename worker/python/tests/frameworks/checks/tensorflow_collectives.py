"""Collectives of elasticrun.tensorflow, eager and in graphs, compared with the results of one process."""

import numpy
import pytest
import tensorflow as tf

import elasticrun.tensorflow as hvd
from elasticrun.tensorflow import host
from elasticrun.tensorflow.adasum import pair

FLOATS = [tf.float16, tf.bfloat16, tf.float32, tf.float64]
INTEGERS = [tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64]


def of_rank(rank, shape=(4, 3), dtype=tf.float32):
    """A tensor that each rank can compute for all."""
    numbers = numpy.random.default_rng(rank).normal(size=shape) + 3
    return tf.cast(tf.constant(numpy.round(numbers)), dtype)


def of_all(size, **options):
    return numpy.stack([of_rank(rank, **options).numpy().astype("f8") for rank in range(size)])


def both(function):
    """``function``, eager and as a graph."""
    return [function, tf.function(function)]


def check_sums_of_each_type(rank, size):
    for dtype in FLOATS + INTEGERS:
        for allreduce in both(lambda x: hvd.allreduce(x, op=hvd.Sum)):
            result = allreduce(of_rank(rank, dtype=dtype))
            assert result.dtype == dtype
            numpy.testing.assert_allclose(result.numpy().astype("f8"), of_all(size, dtype=dtype).sum(0))


def check_each_reduction(rank, size):
    every = of_all(size)
    for op, expected in [
        (hvd.Average, every.mean(0)),
        (hvd.Sum, every.sum(0)),
        (hvd.Min, every.min(0)),
        (hvd.Max, every.max(0)),
        (hvd.Product, every.prod(0)),
    ]:
        for allreduce in both(lambda x, op=op: hvd.allreduce(x, op=op)):
            numpy.testing.assert_allclose(allreduce(of_rank(rank)), expected, rtol=1e-6)


def check_scalars_variables_and_empty_tensors(rank, size):
    assert hvd.allreduce(tf.constant(float(rank))).shape == ()
    assert hvd.allreduce(tf.Variable([1.0, rank]), op=hvd.Sum).numpy().tolist() == [size, sum(range(size))]
    assert hvd.allreduce(tf.zeros([0, 3])).shape == (0, 3)


def check_the_input_is_left_as_it_is(rank, size):
    tensor, variable = of_rank(rank), tf.Variable(of_rank(rank))
    before = tensor.numpy()
    for allreduce in both(lambda x: hvd.allreduce(x, op=hvd.Sum)):
        allreduce(tensor)
        allreduce(variable)
    assert (tensor.numpy() == before).all()
    assert (variable.numpy() == before).all()


def check_factors_and_fp16(rank, size):
    result = hvd.allreduce(
        of_rank(rank), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0, compression=hvd.Compression.fp16
    )
    assert result.dtype == tf.float32
    numpy.testing.assert_allclose(result, of_all(size).sum(0) * 1.5, rtol=1e-2)


def check_average_argument_of_old_scripts(rank, size):
    numpy.testing.assert_allclose(hvd.allreduce(of_rank(rank), average=False), of_all(size).sum(0))
    with pytest.raises(ValueError, match="op and average are both given"):
        hvd.allreduce(of_rank(rank), average=True, op=hvd.Sum)


def check_groups_of_types(rank, size):
    first, second, third = hvd.grouped_allreduce(
        [tf.constant([rank]), tf.constant([1.0 * rank]), tf.constant([[2.0 * rank]])], op=hvd.Sum
    )
    total = sum(range(size))
    assert first.dtype == tf.int32
    assert (int(first[0]), float(second[0]), float(third[0, 0])) == (total, total, 2 * total)


def check_rows_of_a_larger_tensor(rank, size):
    def combined(op):
        slices = tf.IndexedSlices(tf.ones([rank + 1, 2]), tf.range(rank + 1), dense_shape=[size, 2])
        return tf.convert_to_tensor(hvd.allreduce(slices, op=op))

    sums = numpy.array([[size - row] * 2 for row in range(size)], "f")
    for op, expected in [(hvd.Sum, sums), (hvd.Average, sums / size)]:
        for allreduce in both(lambda op=op: combined(op)):
            numpy.testing.assert_allclose(allreduce(), expected, rtol=1e-6)
    with pytest.raises(NotImplementedError, match="Max of tf.IndexedSlices"):
        combined(hvd.Max)


def check_adasum(rank, size):
    result = hvd.allreduce(of_rank(rank), op=hvd.Adasum)
    parts = [of_rank(other).numpy() for other in range(size)]
    # The last of three is combined with the first one before.
    expected = pair(pair(parts[0], parts[2]), parts[1]) if size == 3 else pair(parts[0], parts[1])
    numpy.testing.assert_allclose(result, expected, rtol=1e-5)
    # Equal gradients are averaged, orthogonal ones added.
    numpy.testing.assert_allclose(hvd.allreduce(tf.ones([5]), op=hvd.Adasum), numpy.ones(5), rtol=1e-6)
    numpy.testing.assert_allclose(hvd.allreduce(tf.one_hot(rank, size), op=hvd.Adasum), numpy.ones(size), rtol=1e-6)


def check_allgather_of_different_rows(rank, size):
    for allgather in both(hvd.allgather):
        joined = allgather(tf.fill([rank + 1, 2], rank))
        assert joined[:, 0].numpy().tolist() == [r for r in range(size) for _ in range(r + 1)]
    assert hvd.grouped_allgather([tf.constant([rank])])[0].numpy().tolist() == list(range(size))
    with pytest.raises(ValueError, match="without dimensions"):
        hvd.allgather(tf.constant(1))


def check_broadcast(rank, size):
    for broadcast in both(lambda x: hvd.broadcast(x, size - 1)):
        for dtype in [tf.float32, tf.bfloat16, tf.bool, tf.int64]:
            assert (broadcast(of_rank(rank, dtype=dtype)) == of_rank(size - 1, dtype=dtype)).numpy().all()
    with pytest.raises(ValueError, match=f"there are the ranks 0 to {size - 1}"):
        hvd.broadcast(tf.constant(1), size)


def check_broadcast_of_variables(rank, size):
    variables = [tf.Variable(of_rank(rank)), tf.Variable(rank), tf.Variable([rank, rank], dtype=tf.int64)]
    hvd.broadcast_variables(variables, root_rank=1)
    assert (variables[0].numpy() == of_rank(1).numpy()).all()
    assert int(variables[1]) == 1
    assert [value.numpy().tolist() for value in hvd.broadcast_(variables[1:], 0)] == [1, [1, 1]]


def check_alltoall(rank, size):
    for alltoall in both(lambda x, s: hvd.alltoall(x, splits=s)):
        # Rank r sends r + 1 rows to each rank.
        output, received = alltoall(tf.fill([(rank + 1) * size], rank), [rank + 1] * size)
        assert received.numpy().tolist() == [r + 1 for r in range(size)]
        assert output.numpy().tolist() == [r for r in range(size) for _ in range(r + 1)]
    assert hvd.alltoall(tf.fill([size], rank)).numpy().tolist() == list(range(size))
    with pytest.raises(ValueError, match="pass splits"):
        hvd.alltoall(tf.zeros([size + 1]))


def check_reducescatter(rank, size):
    rows = size + 1
    for reducescatter in both(lambda x: hvd.reducescatter(x, op=hvd.Sum)):
        own = reducescatter(tf.reshape(tf.range(2 * rows), [rows, 2]))
        first = rank + min(rank, 1)
        expected = size * numpy.arange(2 * rows).reshape(rows, 2)[first : first + 1 + (rank < 1)]
        assert own.numpy().tolist() == expected.tolist()
    with pytest.raises(ValueError, match="use Average or Sum"):
        hvd.reducescatter(tf.zeros([size]), op=hvd.Max)
    assert hvd.reducescatter(tf.zeros([size]), ignore_name_scope=True).shape == [1]
    assert hvd.grouped_reducescatter([tf.zeros([size])], ignore_name_scope=True)[0].shape == [1]


def check_objects(rank, size):
    assert hvd.broadcast_object({"rank": rank}, root_rank=1) == {"rank": 1}
    assert hvd.broadcast_object_fn(0)(rank) == 0
    assert hvd.allgather_object((rank, "x")) == [(r, "x") for r in range(size)]


def check_gradients(rank, size):
    weights = tf.constant(numpy.arange(1.0, 1 + 2 * size), tf.float32)

    def gradient(function, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = function(x)
        return tape.gradient(loss, x)

    x = tf.fill([2], 1.0 + rank)
    total = sum(1.0 + r for r in range(size))
    for call in both(gradient):
        # The average of the upstream gradients 2 y, y being the average.
        squared = call(lambda x: tf.reduce_sum(hvd.allreduce(x) ** 2), x)
        numpy.testing.assert_allclose(squared, [2 * total / size] * 2, rtol=1e-6)
        squared = call(lambda x: tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum) ** 2), x)
        numpy.testing.assert_allclose(squared, [2 * total * size] * 2, rtol=1e-6)
        # All ranks have the same upstream gradient: the average is that, and each takes its part.
        part = call(lambda x: tf.reduce_sum(hvd.allgather(x) * weights), x)
        assert part.numpy().tolist() == weights[2 * rank : 2 * rank + 2].numpy().tolist()
        root = call(lambda x: 3 * tf.reduce_sum(hvd.broadcast(x, 1)), x)
        assert root.numpy().tolist() == [3.0 * (rank == 1)] * 2
        back = call(lambda x: tf.reduce_sum(hvd.alltoall(x)) * (rank + 1), tf.ones([size]))
        assert back.numpy().tolist() == [r + 1.0 for r in range(size)]
        scattered = call(lambda x: tf.reduce_sum(hvd.reducescatter(x)) * (rank + 1), tf.ones([size]))
        assert scattered.numpy().tolist() == [r + 1.0 for r in range(size)]
    with pytest.raises(NotImplementedError, match="the gradient of an allreduce by Max"):
        gradient(lambda x: hvd.allreduce(x, op=hvd.Max), x)


def check_a_graph_keeps_the_order_of_the_program(rank, size):
    """Collectives that do not depend on each other, of different kinds, in branches and loops."""

    @tf.function
    def many(x, turns):
        parts = [hvd.allreduce(x[i : i + 1], op=hvd.Sum, name=f"part {i}") for i in range(20)]
        for _ in tf.range(turns):
            x += hvd.allreduce(tf.ones_like(x), op=hvd.Sum)
            if tf.reduce_sum(x) > 0.0:
                x += hvd.broadcast(x, 0) * 0.0
        tail = inner(x)
        return parts, x, tail, hvd.allgather(x[:1])

    @tf.function
    def inner(x):
        return hvd.allreduce(x, op=hvd.Max)

    for _ in range(10):
        parts, x, tail, heads = many(tf.range(20.0), 3)
        assert [float(part[0]) for part in parts] == [size * i for i in range(20)]
        assert x.numpy().tolist() == [i + 3.0 * size for i in range(20)]
        assert (tail == x).numpy().all()
        assert heads.shape == (size,)


def check_rank_and_size_in_a_graph(rank, size):
    @tf.function
    def standing():
        return hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op()

    assert [int(number) for number in standing()] == [rank, size, hvd.local_rank(), hvd.local_size()]
    assert int(hvd.process_set_included_op()) == 1


def check_distributed_tape(rank, size):
    variables = {"a": tf.Variable([1.0, 2.0]), "b": tf.Variable(3.0), "unused": tf.Variable(0.0)}
    total = sum(1 + r for r in range(size))

    def step(**options):
        with tf.GradientTape() as tape:
            loss = (1.0 + rank) * (tf.reduce_sum(variables["a"]) * variables["b"])
        return hvd.DistributedGradientTape(tape, **options).gradient(loss, variables)

    for options, factor in [
        ({}, 1 / size),
        ({"op": hvd.Sum}, 1.0),
        ({"gradient_predivide_factor": 2.0}, 1 / size),
        ({"compression": hvd.Compression.fp16}, 1 / size),
        ({"num_groups": 2}, 1 / size),
        ({"groups": [[variables["b"]]]}, 1 / size),
    ]:
        for call in both(lambda options=options: step(**options)):
            gradients = call()
            numpy.testing.assert_allclose(gradients["a"], [3 * total * factor] * 2, rtol=1e-5)
            numpy.testing.assert_allclose(gradients["b"], 3 * total * factor, rtol=1e-5)
            assert gradients["unused"] is None


def check_distributed_tape_that_records(rank, size):
    x = tf.Variable(2.0)
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        y = x * x * float(rank)
        with tape.stop_recording():
            z = y * 2.0
    mean = sum(range(size)) / size
    numpy.testing.assert_allclose(tape.gradient(y, x), 4 * mean, rtol=1e-6)
    numpy.testing.assert_allclose(tape.gradient(y, [x])[0], 4 * mean, rtol=1e-6)
    assert tape.gradient(z, x) is None
    assert tape.watched_variables()[0] is x


def check_gradients_of_an_embedding(rank, size):
    table = tf.Variable(tf.ones([4, 2]))
    for options in [{}, {"sparse_as_dense": True}]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [rank, 3]))
        gradient = hvd.DistributedGradientTape(tape, **options).gradient(loss, table)
        assert isinstance(gradient, tf.IndexedSlices) == (not options)
        expected = numpy.zeros([4, 2])
        expected[:size] += 1 / size
        expected[3] += 1.0
        numpy.testing.assert_allclose(tf.convert_to_tensor(gradient), expected, rtol=1e-6)


def check_what_is_refused(rank, size):
    x = tf.constant([1.0])
    with pytest.raises(NotImplementedError, match="process sets are not offered"):
        hvd.allreduce(x, process_set=hvd.ProcessSet)
    with pytest.raises(NotImplementedError, match="join is not offered"):
        hvd.join()
    with pytest.raises(NotImplementedError, match="no global variables"):
        hvd.broadcast_global_variables(0)
    with pytest.raises(NotImplementedError, match="start_timeline"):
        hvd.start_timeline("x")
    with pytest.raises(TypeError, match="cannot be combined"):
        hvd.allreduce(tf.constant([True]), op=hvd.Sum)
    with pytest.raises(ValueError, match="op is 17: use one of Average"):
        hvd.allreduce(x, op=17)
    with pytest.raises(ValueError, match="gradient_predivide_factor is for op=Average"):
        hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="groups is -1"):
        hvd.DistributedGradientTape(tf.GradientTape(), num_groups=-1)
    with tf.Graph().as_default(), pytest.raises(NotImplementedError, match="TensorFlow 1"):
        hvd.allreduce(tf.constant(1.0))


def check_what_scripts_ask(rank, size):
    assert hvd.is_initialized() and hvd.is_homogeneous() and hvd.gloo_built() and hvd.gloo_enabled()
    assert not any(
        built()
        for built in [
            hvd.mpi_built, hvd.mpi_enabled, hvd.mpi_threads_supported, hvd.nccl_built, hvd.ccl_built, hvd.ddl_built,
        ]
    )  # fmt: skip
    assert hvd.cuda_built() == tf.test.is_built_with_cuda()
    assert hvd.rocm_built() == tf.test.is_built_with_rocm()
    assert hvd.global_process_set.size() == size
    assert [hvd.check_num_rank_power_of_2(n) for n in (0, 1, 3, 8)] == [False, True, False, True]
    assert all(hasattr(hvd, name) for name in hvd.__all__)


def check_a_first_collective_when_a_function_is_traced_again(rank, size):
    host._ordering = None

    @tf.function
    def step(reduce):
        return hvd.allreduce(of_rank(rank), op=hvd.Sum) if reduce else of_rank(rank)

    step(False)
    numpy.testing.assert_allclose(step(True).numpy(), of_all(size).sum(0))
