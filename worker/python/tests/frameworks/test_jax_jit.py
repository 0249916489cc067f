"""Collectives inside of functions that JAX compiles, by its ordered callbacks."""

import re

import pytest

pytest.importorskip("jax", reason="JAX is not installed: run `make test-frameworks`")


def test_collectives_in_a_compiled_function_run_in_its_order(start):
    output = start.job(
        "-np 2",
        """
        import jax, jax.numpy as jnp, numpy
        from jax.experimental import io_callback
        import elasticrun

        elasticrun.init()
        rank, size = elasticrun.rank(), elasticrun.size()

        def collective(function, x):
            like = jax.ShapeDtypeStruct(x.shape, x.dtype)
            return io_callback(lambda array: function(numpy.asarray(array)), like, x, ordered=True)

        @jax.jit
        def step(x):
            # Some depend on each other, others do not.
            for turn in range(5):
                total = collective(lambda array: elasticrun.allreduce(array, elasticrun.Sum), x)
                first = collective(lambda array: elasticrun.broadcast(array, 1), jnp.full(2, rank + turn))
                x = x + total / size + first.sum()
            return x

        x, expected = jnp.full(1000, rank, jnp.float32), numpy.arange(size, dtype="f")
        for _ in range(3):
            x = step(x)
            for turn in range(5):
                expected = expected + expected.mean() + 2 * (1 + turn)
        assert numpy.allclose(x, expected[rank]), (x[0], expected)
        print("EQUAL")
        """,
    ).succeed()
    assert output.count("EQUAL") == 2


def test_a_collective_of_a_traced_array_says_what_to_write(start):
    output = start.alone("""
        import jax, jax.numpy as jnp
        import elasticrun

        elasticrun.init()
        def call(x):
            return elasticrun.allreduce(x).sum()

        for transformed in (jax.jit(call), jax.grad(call), jax.vmap(call)):
            try:
                transformed(jnp.ones((2, 3)))
            except TypeError as error:
                print("TOLD", error)
        print(elasticrun.allreduce(jnp.ones(2)))
    """)
    assert output.count("io_callback(lambda x: elasticrun.allreduce(numpy.asarray(x))") == 3, output


#: Trains by functions that JAX compiles, whose errors come when their results are waited for.
TRAIN = """
import os, signal
import jax, jax.numpy as jnp, numpy
from jax.experimental import io_callback
import elasticrun
from elasticrun import _native

elasticrun.init()
state = elasticrun.JaxState(x=jnp.zeros(4), step=0)

def average(array):
    world = elasticrun.world()
    if (world.round, state.step) == (1, 4):
        # Rank 1 dies when the others are on their way into the collective, and out of all before it.
        if world.rank == 1:
            _native.round_keys().wait(["0", "2"], 60)
            os.kill(os.getpid(), signal.SIGKILL)
        _native.round_keys().set(str(world.rank), b"")
    return elasticrun.allreduce(numpy.asarray(array))

@jax.jit
def step(x):
    return io_callback(average, jax.ShapeDtypeStruct(x.shape, x.dtype), x + 1, ordered={ordered})
"""


@pytest.mark.parametrize("ordered", [True, False])
def test_a_worker_that_dies_beside_a_compiled_function_costs_nothing_but_time(ordered, start):
    output = start.job(
        "-np 3 --min-np 2 --blacklist forever",
        TRAIN.format(ordered=ordered)
        + """
@elasticrun.elastic.run
def train(state):
    while state.step < 8:
        try:
            state.x = jax.block_until_ready(step(state.x))
        except jax.errors.JaxRuntimeError:
            print("JAX FAILED IN ROUND", elasticrun.world().round, flush=True)
            raise
        state.step += 1
        state.commit()

train(state)
print("DONE", elasticrun.size(), state.step, state.x.tolist(), flush=True)
""",
    ).succeed()
    assert re.findall(r"DONE .*", output) == ["DONE 2 8 [8.0, 8.0, 8.0, 8.0]"] * 2, output
    assert output.count("JAX FAILED IN ROUND 1") == 2 and "ROUND 2" not in output, output


def test_what_a_collective_says_in_a_compiled_function_is_what_is_raised(start):
    output = start.job(
        "-np 2",
        TRAIN.format(ordered=True)
        + """
@elasticrun.elastic.run
def train(state):
    jax.block_until_ready(step(jnp.zeros(2 + elasticrun.rank())))

try:
    train(state)
except elasticrun.errors.CollectiveMismatch as error:
    print("TOLD", error, flush=True)
    assert isinstance(error.__cause__, jax.errors.JaxRuntimeError)
""",
    ).succeed()
    told = re.findall(r"TOLD .*", output)
    assert len(told) == 2 and all("rank 1" in line for line in told), output
