"""Workers of a loader of torch: the same batches in the same order, which count when they are returned."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from support import parquet

from elasticrun.data import Mixture, Nest, Pack, ParquetDataset, ahead, torch_loader
from elasticrun.errors import DataError

ROWS = 200
ORDERS = [{"batch_size": 7}, {"order": "deterministic", "global_batch_size": 7, "stripes": 10}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return parquet.write(tmp_path / "data", rows=ROWS, files=2, group=30)


def dataset(path, **options):
    return ParquetDataset(path, columns=["index", "x"], **options)


def doubled(columns):
    return {"index": columns["index"], "doubled": torch.from_numpy(2 * columns["index"])}


def indices(tensors):
    return tensors["index"].tolist()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("persistent", [False, True])
def test_the_batches_are_those_without_workers(path, order, persistent):
    expected = [indices(batch.torch()) for batch in dataset(path, **order)]
    loader = torch_loader(dataset(path, **order), num_workers=2, collate_fn=indices, persistent_workers=persistent)
    assert len(loader) == len(expected)
    found = []
    for batch in loader:
        found.append(batch)
        assert len(loader) == len(expected) - len(found)
    assert found == expected
    # The next epoch has all rows too.
    assert sorted(index for batch in loader for index in batch) == list(range(ROWS))


def test_workers_transform_and_make_tensors(path, tmp_path):
    calls = []
    marks = tmp_path / "processes"
    marks.mkdir()

    def here(columns):
        calls.append(1)
        # On a busy machine one process could do all of it before the other one has begun.
        (marks / str(os.getpid())).touch()
        deadline = time.monotonic() + 60
        while len(list(marks.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        return {**doubled(columns), "pid": columns["index"] * 0 + os.getpid()}

    pids = set()
    for batch in torch_loader(dataset(path, batch_size=7, transform=here), num_workers=2):
        assert torch.equal(batch["doubled"], 2 * batch["index"])
        pids |= set(batch["pid"].tolist())
    assert calls == [] and os.getpid() not in pids and len(pids) == 2


def test_a_loop_that_stops_loses_no_row(path):
    loader = torch_loader(dataset(path, batch_size=7), num_workers=2, prefetch_factor=4, collate_fn=indices)
    found = []
    while len(found) < ROWS:
        for count, batch in enumerate(loader):
            found += batch
            if count == 2:
                break
    assert sorted(found) == list(range(ROWS))


def test_workers_persist_and_are_numbered(path):
    numbers = []

    def begins(number):
        numbers.append(number)

    def who(tensors):
        # Each worker has a turn.
        time.sleep(0.01)
        return os.getpid(), list(numbers)

    def told(persistent):
        loader = torch_loader(
            dataset(path, batch_size=7),
            num_workers=2,
            collate_fn=who,
            worker_init_fn=begins,
            persistent_workers=persistent,
        )
        epochs = [list(loader) for _ in range(2)]
        assert {tuple(own) for epoch in epochs for _, own in epoch} == {(0,), (1,)}
        return [{pid for pid, _ in epoch} for epoch in epochs]

    first, second = told(True)
    assert first == second and len(first) == 2
    first, second = told(False)
    assert first.isdisjoint(second)


def test_a_worker_that_dies_is_named_and_loses_no_row(path, tmp_path):
    def dies(tensors):
        if (tmp_path / "die").exists() and 11 in tensors["index"]:
            (tmp_path / "die").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return indices(tensors)

    (tmp_path / "die").touch()
    loader = torch_loader(dataset(path, batch_size=7), num_workers=2, collate_fn=dies)
    found = []
    with pytest.raises(DataError, match="a process that runs transform and collate_fn has died"):
        for batch in loader:
            found += batch
    found += [index for batch in loader for index in batch]
    assert sorted(found) == list(range(ROWS))


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_worker_that_stands_still_is_named_and_ends_with_the_loop(path, persistent, monkeypatch):
    def stands(tensors):
        os.kill(os.getpid(), signal.SIGSTOP)
        return tensors

    monkeypatch.setattr(ahead, "PATIENCE_S", 0.5)
    loader = torch_loader(dataset(path, batch_size=7), num_workers=2, collate_fn=stands, persistent_workers=persistent)
    with pytest.raises(RuntimeWarning, match="does transform hang"):
        next(iter(loader))
    deadline = time.monotonic() + 30
    while multiprocessing.active_children():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_error_in_a_worker_is_raised_in_its_turn(path):
    def fails(tensors):
        if 11 in tensors["index"]:
            raise ValueError("eleven")
        return indices(tensors)

    with pytest.raises(ValueError, match="eleven"):
        list(torch_loader(dataset(path, batch_size=7), num_workers=2, collate_fn=fails))
    # What a worker returns is pickled.
    with pytest.raises((TypeError, AttributeError), match="pickle"):
        list(torch_loader(dataset(path, batch_size=7), num_workers=2, collate_fn=lambda tensors: lambda: None))


def test_ragged_columns_and_mixtures(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    tokens = pa.array([list(range(row % 4)) for row in range(40)], pa.list_(pa.int32()))
    pq.write_table(pa.table({"index": list(range(40)), "tokens": tokens}), tmp_path / "ragged.parquet")

    def data(form):
        return ParquetDataset(tmp_path / "ragged.parquet", batch_size=8, forms={"tokens": form})

    for form in (Pack(), Nest()):
        for batch in torch_loader(data(form), num_workers=2):
            values = batch["tokens"] if form == Pack() else batch["tokens"].values()
            assert values.tolist() == [token for row in indices(batch) for token in range(row % 4)]
    mixture = Mixture([data(Pack()), data(Pack())], [3, 1])
    assert sorted(index for batch in torch_loader(mixture, num_workers=2) for index in indices(batch)) == sorted(
        [*range(40), *range(40)]
    )
    assert len(list(torch_loader(mixture))) == 10


def test_wrong_options_are_named(path):
    data = dataset(path, batch_size=7)
    with pytest.raises(ValueError, match="num_workers=-1: must be at least 0"):
        torch_loader(data, num_workers=-1)
    with pytest.raises(ValueError, match="persistent_workers and worker_init_fn are for num_workers > 0"):
        torch_loader(data, persistent_workers=True)
    with pytest.raises(TypeError, match="timeout"):
        torch_loader(data, num_workers=1, timeout=5)


def test_a_position_in_a_checkpoint_of_torch(start, path, tmp_path):
    # In a process of its own: without init() there are no commits.
    start.alone(
        f"""
        import torch, torch.distributed.checkpoint as dcp
        from elasticrun.data import ParquetDataset, torch_loader

        def dataset():
            return ParquetDataset({str(path)!r}, batch_size=7, columns=["index"])

        def rest(batches):
            return sorted(index for batch in batches for index in batch["index"].tolist())

        loader = torch_loader(dataset(), num_workers=2)
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        torch.save(loader.state_dict(), "{tmp_path}/position.pt")
        dcp.save({{"data": loader}}, checkpoint_id="{tmp_path}/dcp")
        expected = rest(batches)
        assert len(expected) == {ROWS} - 5 * 7
        other = dataset()
        other.load_state_dict(torch.load("{tmp_path}/position.pt", weights_only=True))
        assert rest(other) == expected
        other = dataset()
        dcp.load({{"data": other}}, checkpoint_id="{tmp_path}/dcp")
        assert rest(other) == expected
        """
    )
