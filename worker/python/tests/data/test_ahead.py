"""Batches that are decoded and transformed ahead of the step are the same, in the same order, and count when they are returned."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import parquet
from support.images import png

from elasticrun.data import Batch, Image, ParquetDataset, ahead
from elasticrun.errors import DataError

ROWS = 200
ORDERS = [{"batch_size": 7}, {"order": "deterministic", "global_batch_size": 7, "stripes": 10}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return parquet.write(tmp_path / "data", rows=ROWS, files=2, group=30)


def doubled(columns):
    return {"index": columns["index"], "doubled": 2 * columns["index"]}


def indices(batch: Batch) -> list[int]:
    return batch["index"].tolist()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("more", [{"prefetch": 1}, {"prefetch": 50}, {"transform": doubled}, {"transform_workers": 2}])
def test_the_batches_are_the_same_in_the_same_order(path, order, more):
    if "transform_workers" in more:
        more = {**more, "transform": doubled}
    expected = [indices(batch) for batch in ParquetDataset(path, **order, prefetch=0)]
    data = ParquetDataset(path, **order, **more)
    found, left = [], len(data)
    for batch in data:
        left -= 1
        assert len(data) == left
        found.append(indices(batch))
        if "transform" in more:
            assert batch["doubled"].tolist() == [2 * index for index in found[-1]]
    assert found == expected
    # The next epoch has all rows too.
    assert sorted(index for batch in data for index in indices(batch)) == list(range(ROWS))


@pytest.mark.parametrize("order", ORDERS)
def test_a_loop_that_stops_loses_no_batch(path, order):
    expected = [indices(batch) for batch in ParquetDataset(path, **order, prefetch=0)]
    data = ParquetDataset(path, **order, transform=doubled, prefetch=4)
    found = []
    while len(found) < len(expected):
        for count, batch in enumerate(data):
            found.append(indices(batch))
            if count == 2:
                break
    assert found == expected


def test_two_loops_at_once_share_the_rows(path):
    expected = [indices(batch) for batch in ParquetDataset(path, batch_size=7, prefetch=0)]
    data = ParquetDataset(path, batch_size=7, prefetch=3)
    found = []
    one, other = iter(data), iter(data)
    for turn in range(len(expected)):
        found.append(indices(next(other if turn % 3 else one)))
    assert found == expected


def test_what_was_prepared_does_not_count(path):
    data = ParquetDataset(path, batch_size=7, prefetch=5)
    loop = iter(data)
    for count in range(1, 5):
        next(loop)
        assert data._data.position()[2] == ROWS - 7 * count


def test_a_commit_keeps_what_was_prepared(path):
    """It makes steps fewer, since the predicate has dropped rows."""
    called = []

    def counted(columns):
        called.append(len(columns["index"]))
        return dict(columns)

    data = ParquetDataset(path, batch_size=7, where=[("index", "in", range(0, ROWS, 3))], transform=counted, prefetch=3)
    found = []
    for batch in data:
        found += indices(batch)
        # As a commit does.
        data._data.agree_alone()
    assert sorted(found) == list(range(0, ROWS, 3))
    assert sum(called) == len(found)


def test_an_error_of_a_transform_is_raised_in_its_turn_and_loses_no_row(path):
    failing = [True]

    def fails(columns):
        if failing[0] and 11 in columns["index"]:
            raise ValueError("eleven")
        return dict(columns)

    data = ParquetDataset(path, batch_size=7, transform=fails, prefetch=6)
    found = []
    with pytest.raises(ValueError, match="eleven"):
        for batch in data:
            found += indices(batch)
    assert 11 not in found and len(found) % 7 == 0
    failing[0] = False
    found += [index for batch in data for index in indices(batch)]
    assert sorted(found) == list(range(ROWS))


def test_a_transform_is_called_for_one_batch_after_the_other_and_beside_the_step(path):
    inside, threads = [], set()

    def counted(columns):
        inside.append(threading.get_ident())
        assert len(inside) == 1
        threads.add(inside[0])
        time.sleep(0.002)
        inside.clear()
        return dict(columns)

    for _ in ParquetDataset(path, batch_size=7, transform=counted):
        pass
    assert len(threads) == 1 and threading.get_ident() not in threads


def test_processes_call_the_transform_and_one_that_dies_is_named(path, tmp_path):
    def pids(columns):
        if (tmp_path / "die").exists() and 11 in columns["index"]:
            (tmp_path / "die").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"index": columns["index"], "pid": np.full(len(columns["index"]), os.getpid())}

    data = ParquetDataset(path, batch_size=7, transform=pids, transform_workers=2)
    batches = list(data)
    workers = {pid for batch in batches for pid in batch["pid"].tolist()}
    assert 1 <= len(workers) <= 2 and os.getpid() not in workers
    (tmp_path / "die").touch()
    found = []
    with pytest.raises(DataError, match="a process that runs transform has died"):
        for batch in data:
            found += indices(batch)
    found += [index for batch in data for index in indices(batch)]
    assert sorted(found) == list(range(ROWS))


def test_processes_end_with_a_script_that_is_killed(start, path, tmp_path):
    job = start.command(
        sys.executable,
        str(
            start.script(
                f"""
                import os, time, numpy as np
                from elasticrun.data import ParquetDataset

                def pids(columns):
                    open(f"{tmp_path}/{{os.getpid()}}.pid", "w").close()
                    return dict(columns)

                for batch in ParquetDataset("{path}", batch_size=7, transform=pids, transform_workers=2):
                    print("BATCH", flush=True)
                    time.sleep(60)
                """
            )
        ),
    )
    job.until("BATCH")
    pids = [int(name.stem) for name in tmp_path.glob("*.pid")]
    assert pids
    job.process.kill()
    job.process.wait()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, pids
        time.sleep(0.05)


def test_an_error_in_a_process_is_that_of_the_transform(path):
    def fails(columns):
        raise KeyError("no such thing")

    with pytest.raises(KeyError, match="no such thing"):
        next(iter(ParquetDataset(path, batch_size=7, transform=fails, transform_workers=1)))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_transform_that_hangs_is_named_in_a_warning(path, monkeypatch, workers):
    monkeypatch.setattr(ahead, "PATIENCE_S", 0.1)

    def slow(columns):
        time.sleep(0.35)
        return dict(columns)

    data = ParquetDataset(path, batch_size=100, transform=slow, transform_workers=workers)
    with pytest.warns(RuntimeWarning, match="decoded and transformed for 0 s: does transform hang"):
        assert len(list(data)) == 2


def test_wrong_numbers_are_refused(path):
    for more in ({"prefetch": -1}, {"transform_workers": -1, "transform": doubled}):
        with pytest.raises(ValueError, match="=-1: must be at least 0"):
            ParquetDataset(path, batch_size=7, **more)
    with pytest.raises(ValueError, match="transform_workers=2: there is no transform"):
        ParquetDataset(path, batch_size=7, transform_workers=2)
    with pytest.raises(ValueError, match="prefetch=0: transform_workers work ahead"):
        ParquetDataset(path, batch_size=7, transform=doubled, transform_workers=2, prefetch=0)


def test_images_are_decoded_before_they_are_asked_for(tmp_path):
    table = pa.table({"image": [png(9, 9, (shade, 0, 0)) for shade in range(20)]})
    pq.write_table(table, tmp_path / "images.parquet")
    data = ParquetDataset(tmp_path / "images.parquet", batch_size=5, forms={"image": Image((4, 4))}, shuffle=False)
    shades = []
    for batch in data:
        assert "image" in batch._formed
        shades += batch["image"][:, 0, 0, 0].tolist()
    assert shades == list(range(20))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lazy = ParquetDataset(tmp_path / "images.parquet", batch_size=5, forms={"image": Image((4, 4))}, prefetch=0)
        assert all("image" not in batch._formed for batch in lazy)


def in_a_fork(function):
    """Calls a function in a process that is forked from this one, and returns how that has ended."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
        finally:
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_data_set_belongs_to_the_process_that_has_opened_it(path):
    """A loader of torch forks its workers, with threads that do not survive that."""
    data = [ParquetDataset(path, batch_size=7)]
    next(iter(data[0]))

    def releases():
        data.clear()
        gc.collect()
        os._exit(0)

    def reads():
        try:
            next(iter(data[0]))
        except DataError as error:
            assert "was opened before this process was forked, and cannot be read here" in str(error)
            os._exit(0)

    assert in_a_fork(releases) == 0
    assert in_a_fork(reads) == 0
    assert len(indices(next(iter(data[0])))) == 7
