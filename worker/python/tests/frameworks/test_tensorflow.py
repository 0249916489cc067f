"""elasticrun.tensorflow in real jobs."""

import re
from pathlib import Path

import pytest
from support import newcomers
from support.checks import checked, checks_of

pytest.importorskip("tensorflow", reason="TensorFlow is not installed: run `make test-frameworks`")

CHECKS = Path(__file__).parent / "checks" / "tensorflow_collectives.py"
TRAIN = Path(__file__).parent / "workers" / "tensorflow_train.py"
DONE = re.compile(r"done rank (\d+) of (\d+): step (\d+) resets \[(.*)\] sum ([\d.]+)")


@pytest.mark.parametrize("name", checks_of(CHECKS))
def test_collectives(name):
    checked(CHECKS, 3).passed(name)


def test_a_worker_killed_beside_a_graph_costs_nothing_but_time(start):
    one = DONE.findall(start.train("-np 1", TRAIN, "20").succeed())
    output = start.train("-np 3 --min-np 2 --blacklist forever", TRAIN, "20", "1", "8").succeed()
    two = DONE.findall(output)
    assert [(size, step, resets) for _, size, step, resets, _ in two] == [("2", "20", "2")] * 2, output
    assert "of 2 from step 8" in output
    assert float(two[0][4]) == float(two[1][4]) == pytest.approx(float(one[0][4]), abs=1e-3)


def test_a_host_that_comes_is_used_and_nothing_is_done_again(start):
    change = start.hosts("localhost:1\n")
    job = start.train(f"--min-np 1 --host-discovery-script {start.discovery} --discovery-interval 100ms", TRAIN, "0")
    job.until("committed 20 with 1")
    change("localhost:1\n127.0.0.1:1\n")
    output = job.succeed()
    assert [size for _, size, *_ in DONE.findall(output)] == ["2", "2"], output
    # Rank 0 stops at a boundary and continues there, so no step is repeated; only the line of that step is missing.
    steps = [int(step) for step in re.findall(r"committed (\d+) with", output)]
    assert len(steps) == steps[-1] - 1 == len(set(steps))


@pytest.mark.parametrize("where", ["at once", "in a graph"])
def test_tensors_of_different_shapes_are_named(where, start):
    job = start.job(
        "-np 2",
        f"""
        import tensorflow as tf
        import elasticrun.tensorflow as hvd

        hvd.init()
        state = hvd.elastic.TensorFlowState(variables=[tf.Variable(0.0)])
        call = lambda x: hvd.allreduce(x, name="the loss")
        if {where!r} == "in a graph":
            call = tf.function(call)

        @hvd.elastic.run
        def train(state):
            call(tf.zeros([2 + hvd.rank()]))

        try:
            train(state)
        except Exception as error:
            print(f"{{type(error).__name__}}: {{error}}", flush=True)
            raise SystemExit(3)
        """,
    )
    job.fail(1)
    told = [line for line in job.lines if "CollectiveMismatch: " in line]
    assert told and all("the loss" in line and "rank" in line for line in told), job.text


def test_a_data_set_of_parquet(start):
    digits = Path(__file__).parents[4] / "examples/digits/data/digits.parquet"
    text = start.job(
        "-np 2",
        f"""
import numpy as np
import tensorflow as tf
import elasticrun as e
from elasticrun.data import ParquetDataset, tf_dataset

e.init()
data = ParquetDataset("{digits}", batch_size=100, seed=1)
own = 0
for batch in tf_dataset(data):
    assert isinstance(batch["label"], tf.Tensor) and len(batch["label"]) == len(batch["image"])
    own += len(batch["label"])
print("ROWS", int(e.allreduce(float(own), op=e.Sum)), "OF", data.rows)
""",
    ).succeed()
    assert text.count("ROWS 1797 OF 1797") == 2, text


def test_a_newcomer_that_loses_another_in_its_first_sync_goes_on_from_the_base(start):
    text = start.job(
        newcomers.FLAGS,
        newcomers.PRELUDE
        + """
import tensorflow as tf
import elasticrun as e
import elasticrun.tensorflow as hvd

hvd.init()
total = tf.Variable(0.0)
state = hvd.elastic.TensorFlowState(variables=[total], step=0)
state.register_reset_callbacks([lambda: print("RESET FROM", state.step)])
state.set_check_hosts_added_delay(1000)

@hvd.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    while state.step < 20:
        if state.step == 10:
            die_together()
        total.assign_add(hvd.allreduce(tf.constant(1.0)))
        state.step += 1
        state.commit()
    print("TOTAL", total.numpy())
train(state)
""",
    ).succeed()
    assert [entry[1:] for entry in start.rounds(text)] == [(0, 2, 0), (1, 2, 0), (0, 2, 10), (1, 2, 10)], text
    assert text.count("TOTAL 20.0") == 2 and "RESET FROM 0" not in text, text


def test_a_tape_in_a_function_that_xla_compiles_says_what_to_write(start):
    output = start.job(
        "-np 1",
        """
        import tensorflow as tf
        import elasticrun.tensorflow as hvd

        hvd.init()
        x = tf.Variable(1.0)
        state = hvd.elastic.TensorFlowState(variables=[x])

        @tf.function(jit_compile=True)
        def step():
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = x * x
            return tape.gradient(loss, x)

        @hvd.elastic.run
        def train(state):
            step()

        try:
            train(state)
        except ValueError as error:
            print("TOLD", error)
        """,
    ).succeed()
    assert "TOLD XLA cannot compile collectives: leave jit_compile=True out of the tf.function" in output
