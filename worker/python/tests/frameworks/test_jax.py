"""JaxState, and collectives on JAX arrays, in real jobs."""

import re
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="JAX is not installed: run `make test-frameworks`")

EXAMPLE = Path(__file__).parents[4] / "examples" / "python" / "jax_digits.py"


def test_collectives_on_jax_arrays(start):
    start.job(
        "-np 2",
        """
        import jax, jax.numpy as jnp
        import elasticrun as e
        e.init()
        rank = e.rank()
        for name in "float32 bfloat16 float16 int32 uint8".split():
            own = jnp.arange(6, dtype=name).reshape(2, 3)
            got = e.allreduce(own, e.Sum)
            assert isinstance(got, jax.Array) and got.dtype == name and got.shape == (2, 3)
            assert (got == 2 * own).all() and (own == jnp.arange(6, dtype=name).reshape(2, 3)).all()
            assert got.sharding == own.sharding
        assert e.allreduce(jnp.float32(3), e.Sum) == 6
        assert e.allgather(jnp.full((rank + 1, 2), rank)).tolist() == [[0, 0], [1, 1], [1, 1]]
        assert isinstance(e.allgather(jnp.zeros(1)), jax.Array)
        assert e.broadcast(jnp.full(2, rank), 1).tolist() == [1, 1]
        first, second = e.grouped_allreduce([jnp.ones(2), jnp.ones(3, "int32")], e.Sum)
        assert first.tolist() == [2, 2] and second.tolist() == [2, 2, 2]
        try:
            e.allreduce_(jnp.ones(2))
        except TypeError as error:
            assert "cannot be changed in place" in str(error)
        else:
            raise AssertionError
        """,
    ).succeed()


def test_pytrees_go_on_from_the_newest_commit(start):
    text = start.job(
        "-np 3 --min-np 2 -H localhost:3 --blacklist-cooldown-range 0 1",
        """
        import os, signal
        from typing import NamedTuple
        import jax, jax.numpy as jnp
        import elasticrun as e
        e.init()

        class Moments(NamedTuple):
            count: jax.Array
            mean: dict

        params = {"w": jnp.zeros((2, 2)), "b": [jnp.zeros(2, "bfloat16")]}
        state = e.JaxState(params=params, moments=Moments(jnp.int32(0), params), step=0)

        @e.elastic.run
        def train(state):
            while state.step < 10:
                e.barrier()
                state.params = jax.tree.map(lambda leaf: leaf + 1, state.params)
                state.moments = Moments(state.moments.count + 1, state.params)
                state.step += 1
                state.commit()
                if e.world().round == 1 and e.rank() == 0 and state.step == 5:
                    os.kill(os.getpid(), signal.SIGKILL)
            assert isinstance(state.moments, Moments) and state.moments.count == 10
            leaves = jax.tree.leaves((state.params, state.moments.mean))
            assert len(leaves) == 4 and all(isinstance(leaf, jax.Array) and (leaf == 10).all() for leaf in leaves)
            assert state.params["b"][0].dtype == "bfloat16"
            state.params = None
            state.restore()
            assert (state.params["w"] == 10).all()
            print("TRAINED", e.size())

        train(state)
        """,
    ).succeed()
    assert len(re.findall(r"TRAINED \d", text)) >= 2


def test_arrays_come_back_to_their_devices(start):
    start.alone(
        """
        import jax, jax.numpy as jnp
        import elasticrun as e
        e.init()
        here, there = jax.devices()
        own = jax.device_put(jnp.arange(4.0), there)
        spread = jax.device_put(jnp.arange(4.0), jax.sharding.NamedSharding(
            jax.make_mesh((2,), ("x",)), jax.sharding.PartitionSpec("x")))
        state = e.JaxState(own=own, spread=spread)

        @e.elastic.run
        def train(state):
            state.own, state.spread = state.own + 1, state.spread + 1
            state.commit()
            state.own, state.spread = state.own + 1, state.spread + 1
            state.restore()
            assert state.own.tolist() == state.spread.tolist() == [1, 2, 3, 4]
            assert state.own.devices() == {there}
            assert state.spread.sharding == spread.sharding

        train(state)
        assert e.allreduce(own).devices() == {there}
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )


def test_the_example_learns_through_a_failure(start):
    text = start.job(
        "-np 3 --min-np 2 -H localhost:3 --blacklist forever",
        f"""
        import os, runpy, signal
        import elasticrun

        commit = elasticrun.JaxState.commit

        def commit_or_die(state):
            commit(state)
            if elasticrun.world().round == 1 and elasticrun.rank() == 1 and state.sampler.epoch == 2:
                os.kill(os.getpid(), signal.SIGKILL)

        elasticrun.JaxState.commit = commit_or_die
        runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
        """,
    ).succeed()
    share = float(re.search(r"reads ([\d.]+)% of the test digits", text)[1])
    assert share >= 95
    assert re.search(r"epoch 3: loss [\d.]+, 2 workers", text)
