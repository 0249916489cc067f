"""Collectives inside of functions that JAX compiles, by its ordered callbacks."""

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
