"""``drop_last``: an epoch ends with its last complete step, and the audit tells which rows are left out."""

from __future__ import annotations

import json

import pytest
from support import parquet

from elasticrun.data import Mixture, NGram, ParquetDataset, audit, torch_loader
from elasticrun.errors import DataError, StateError


def shards(path, count, **options):
    """The batches of each shard, of one epoch."""
    found = []
    for shard in range(count):
        data = ParquetDataset(path, drop_last=True, **options)
        data._enter_shard(shard, count)
        length = len(data)
        found.append([[int(row) for row in batch["index"]] for batch in data])
        assert length == len(found[-1]) == len(data)
    return found


@pytest.mark.parametrize(("count", "steps"), [(1, 14), (2, 7), (3, 4), (4, 3)])
def test_all_batches_are_full_and_as_many(tmp_path, count, steps):
    path = parquet.write(tmp_path, rows=1000)
    found = shards(path, count, batch_size=70)
    assert [len(batches) for batches in found] == [steps] * count
    rows = [row for batches in found for batch in batches for row in batch]
    assert all(len(batch) == 70 for batches in found for batch in batches)
    assert len(rows) == len(set(rows)) == steps * count * 70


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_order_that_is_the_same_for_all_sizes_drops_the_same_rows(tmp_path, count):
    path = parquet.write(tmp_path, rows=1000)
    found = shards(path, count, order="deterministic", global_batch_size=64, stripes=12)
    rows = {row for batches in found for batch in batches for row in batch}
    assert [len(batches) for batches in found] == [15] * count and len(rows) == 960
    whole = ParquetDataset(path, order="deterministic", global_batch_size=64, stripes=12)
    assert rows == {int(row) for batch in list(whole)[:15] for row in batch["index"]}


@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_next_epoch_has_other_rows(tmp_path, prefetch):
    data = ParquetDataset(parquet.write(tmp_path, rows=100), batch_size=30, drop_last=True, prefetch=prefetch)
    epochs = []
    for _ in data.epochs(3):
        epochs.append(sorted(int(row) for batch in data for row in batch["index"]))
        assert data.progress().steps_left == 0
    assert [len(rows) for rows in epochs] == [90] * 3 and epochs[0] != epochs[1] != epochs[2]


def test_a_loader_of_torch_drops_the_last_batch(tmp_path):
    path = parquet.write(tmp_path, rows=100)
    loader = torch_loader(ParquetDataset(path, batch_size=30), drop_last=True)
    assert len(loader) == 3
    for _ in range(2):
        assert [len(batch["index"]) for batch in loader] == [30] * 3
    assert len(torch_loader(ParquetDataset(path, batch_size=30, drop_last=True))) == 3
    data = ParquetDataset(path, batch_size=30)
    next(iter(data))
    with pytest.raises(StateError, match="drop_last is set before the first round"):
        torch_loader(data, drop_last=True)
    with pytest.raises(ValueError, match="drop_last=True is not for a data set with where"):
        torch_loader(ParquetDataset(path, batch_size=30, where=[("index", "<", 3)]), drop_last=True)


def test_what_cannot_be_is_told(tmp_path):
    path = parquet.write(tmp_path, rows=100)
    with pytest.raises(ValueError, match="drop_last=True and where: which step is the last complete one is not known"):
        ParquetDataset(path, batch_size=30, drop_last=True, where=[("index", "<", 3)])
    with pytest.raises(ValueError, match="drop_last=True and ngram"):
        ParquetDataset(path, batch_size=30, drop_last=True, ngram=NGram({0: ["index"]}, 1, "index"))
    data = ParquetDataset(path, batch_size=101, drop_last=True)
    with pytest.warns(RuntimeWarning, match="drop_last=True leaves out all 100 rows"):
        assert list(data) == []
    with pytest.warns(RuntimeWarning), pytest.raises(DataError, match="an epoch of data set 0 has no steps"):
        list(Mixture([ParquetDataset(path, batch_size=101, drop_last=True)], steps=3))


def test_the_audit_of_a_job_tells_what_is_left_out(start, tmp_path, capsys):
    data = parquet.write(tmp_path / "data", rows=1000)
    start.job(
        "-np 3",
        f"""
        import elasticrun as e
        from elasticrun.data import ParquetDataset

        e.init()
        data = ParquetDataset("{data}", batch_size=30, drop_last=True, audit="{tmp_path}/audit")
        state = e.ObjectState(data=data)

        @e.elastic.run
        def train(state):
            for epoch in state.data.epochs(2):
                for batch in state.data:
                    assert batch.rows == 30
                    e.barrier()
                    state.commit()

        train(state)
        """,
    ).succeed()
    command = [str(tmp_path / "audit"), str(data), "--epochs", "2"]
    code = audit.main(command)
    told = capsys.readouterr().out
    line = "990 rows committed, 0 of them more than once, 10 left out by drop_last, 0 missing"
    assert code == 0 and f"epoch 0: {line}" in told and f"epoch 1: {line}" in told
    # Rows that are neither committed nor left out are missing.
    for path in (tmp_path / "audit").glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if "commit" in line:
                line.pop("left_out", None)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert audit.main(command) == 1
    assert "epoch 0: 990 rows committed, 0 of them more than once, 10 missing" in capsys.readouterr().out


def test_a_job_that_loses_a_worker_commits_each_row_at_most_once(start, tmp_path, capsys):
    data = parquet.write(tmp_path / "data", rows=2000)
    start.job(
        "-np 3 --min-np 2",
        f"""
        import os

        import elasticrun as e
        from elasticrun.data import ParquetDataset

        e.init()
        data = ParquetDataset("{data}", batch_size=30, drop_last=True, audit="{tmp_path}/audit")
        state = e.ObjectState(data=data)

        @e.elastic.run
        def train(state):
            for epoch in state.data.epochs(2):
                for step, batch in enumerate(state.data):
                    assert batch.rows == 30
                    if e.size() == 3 and e.rank() == 2 and step == 7:
                        os._exit(1)
                    e.barrier()
                    state.commit()

        train(state)
        """,
    ).succeed()
    assert audit.main([str(tmp_path / "audit"), str(data), "--epochs", "2"]) == 0
    told = capsys.readouterr().out
    assert told.count("left out by drop_last, 0 missing") == 2, told
