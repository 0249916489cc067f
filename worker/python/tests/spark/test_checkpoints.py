"""Checkpoints of each epoch, and data that a killed program has left."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("there is no torch here: make test-spark brings it", allow_module_level=True)

import torch
from cluster import eventually
from jobs import Bench
from networks import FailsInSecondEpoch, digits, estimator, softmax
from pyspark import SparkContext
from pyspark.sql import SparkSession

from elasticrun.errors import JobError
from elasticrun.spark.store import Store
from elasticrun.spark.torch.checkpoint import Epoch, restore, saved
from elasticrun.spark.torch.checkpoint_writer import CheckpointWriter, Newest
from elasticrun.spark.torch.data_lease import DataLease, abandoned

#: A fit that does not end by itself.
FITS = """
    from networks import digits, estimator, slow_cross_entropy
    from pathlib import Path
    from pyspark.sql import SparkSession
    session = SparkSession(context())
    loss = slow_cross_entropy(Path(FOLDER), 0.01)
    estimator(FOLDER + "/store", MARK, epochs=1000, loss=loss, run_id="mine").fit(digits(session)[0])
"""


def losses(model: Any) -> list[float]:
    return [entry["train"]["loss"] for entry in model.getHistory()]


def test_what_a_killed_program_leaves(bench: Bench, contexts: Any):
    """The weights of its last epoch are gone on with. Its data is kept for a day, since other fits may still run."""
    contexts.free()
    store = bench.folder / "store"
    checkpoint = store / "runs/mine/checkpoint.pt"
    program = bench.program(FITS)
    eventually(lambda: checkpoint.exists() or program.process.poll() is not None, "a checkpoint is written")
    os.kill(program.process.pid, signal.SIGKILL)
    program.fail(-signal.SIGKILL)
    eventually(lambda: not bench.cluster.left(), "the job has ended with its program")
    [data] = (path for path in (store / "data").iterdir() if path.is_dir())

    context = contexts.get()
    train, _ = digits(SparkSession(context))
    first, second = (estimator(str(store), bench.mark, epochs=1, run_id=run).fit(train) for run in ("another", "mine"))
    assert losses(second)[0] < losses(first)[0]
    assert list(data.rglob("*.parquet"))

    long_ago = time.time() - 25 * 60 * 60
    os.utime(data.with_suffix(".alive"), (long_ago, long_ago))
    estimator(str(store), bench.mark, epochs=1).fit(train)
    assert not list((store / "data").iterdir())


def test_a_fit_that_fails_keeps_its_epochs(bench: Bench, spark: SparkContext):
    train, _ = digits(SparkSession(spark))
    store = bench.folder / "store"
    fails = estimator(str(store), bench.mark, epochs=1000, loss=FailsInSecondEpoch(), run_id="mine", reset_limit=1)
    with pytest.raises(JobError):
        fails.fit(train)
    assert not list(store.rglob("*.parquet"))
    model = softmax()
    before = [value.clone() for value in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    restore(model, optimizer, (store / "runs/mine/checkpoint.pt").read_bytes())
    assert any(not torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    # The rate that was given, and not that times the workers.
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_a_checkpoint_does_not_change_the_rates_of_the_optimizer():
    model = softmax()
    optimizer = torch.optim.SGD(model.parameters(), lr=8.0)
    content = saved(model, optimizer, [2.0])
    assert optimizer.param_groups[0]["lr"] == 8.0
    restore(model, optimizer, content)
    assert optimizer.param_groups[0]["lr"] == 2.0


def test_only_newer_epochs_are_written():
    newest = Newest()
    for number in (1, 3, 2, 3):
        newest.put(Epoch(number, b""))
    assert newest.take() == Epoch(3, b"")
    newest.put(Epoch(3, b"again"))
    newest.put(Epoch(4, b""))
    newest.close()
    assert newest.take() == Epoch(4, b""), "the last one is written at the end"
    assert newest.take() is None


def test_a_checkpoint_that_cannot_be_written_is_reported(bench: Bench, spark: SparkContext):
    (bench.folder / "runs").touch()
    lines: list[str] = []
    path = Store(str(bench.folder)).checkpoint("mine")
    with CheckpointWriter(SparkSession(spark), path, lines.append) as writer:
        writer.offer(Epoch(7, b"x"))
    [line] = lines
    assert line.startswith("warning: the checkpoint of epoch 7 was not written: ")


def test_data_is_abandoned_after_a_day():
    hour = 60 * 60 * 1000
    ages = {"own": 0, "young": 23, "old": 25, "other": 1000}
    times = {f"{name}.alive": 10**12 - age * hour for name, age in ages.items()} | {"unmarked": 0, "old": 0}
    assert abandoned(times, "own") == ["old", "other"]


def test_data_that_cannot_be_deleted_fails_no_fit(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    def refuse(session: SparkSession, path: str) -> None:
        raise PermissionError(f"cannot delete {path}")

    files = dict[str, int]()
    monkeypatch.setattr("elasticrun.spark.store.write", lambda session, path, data: files.update({Path(path).name: 0}))
    monkeypatch.setattr("elasticrun.spark.store.list_times", lambda session, path: files)
    monkeypatch.setattr("elasticrun.spark.store.delete", refuse)
    with DataLease(None, Store("/store")) as lease:
        name = Path(lease.path).name
    assert list(files) == [f"{name}.alive"], "a later fit deletes it by this file"
    line = f"warning: the temporary data of this fit, {lease.path}, was not deleted: cannot delete {lease.path}."
    assert line in capfd.readouterr().err
    with pytest.raises(KeyError, match="of the fit"), DataLease(None, Store("/store")):
        raise KeyError("of the fit")
