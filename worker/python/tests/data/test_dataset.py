"""A data set that one process reads."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support import parquet

import elasticrun
from elasticrun.data import Mixture, ParquetDataset, torch_loader
from elasticrun.errors import DataError, StateError


@pytest.fixture(autouse=True, scope="module")
def alone():
    # A process can only be a worker once.
    elasticrun.init()


def test_each_row_comes_once_in_an_order_of_its_own(tmp_path):
    data = ParquetDataset(parquet.write(tmp_path), batch_size=64, seed=3)
    orders = []
    for _ in data.epochs(2):
        order = np.concatenate([batch["index"] for batch in data])
        assert sorted(order) == list(range(1000))
        orders.append(list(order))
    assert orders[0] != orders[1] and orders[0] != sorted(orders[0])


def test_the_seed_changes_the_order_and_the_same_seed_does_not(tmp_path):
    path = parquet.write(tmp_path)

    def order(seed):
        data = ParquetDataset(path, batch_size=100, seed=seed)
        return [int(index) for batch in data for index in batch["index"]]

    assert order(1) == order(1) != order(2)


def test_without_shuffling_rows_come_as_they_stand(tmp_path):
    data = ParquetDataset(parquet.write(tmp_path), batch_size=64, shuffle=False)
    assert [int(index) for batch in data for index in batch["index"]] == list(range(1000))


def test_columns_are_arrays_over_the_memory_of_the_batch(tmp_path):
    data = ParquetDataset(parquet.write(tmp_path, width=3), batch_size=10)
    batch = next(iter(data))
    assert batch.rows == 10 and list(batch) == ["index", "x", "name"]
    assert batch["x"].shape == (10, 3) and batch["x"].dtype == np.float32
    assert (batch["x"] == batch["index"][:, None]).all()
    assert list(batch["name"]) == [f"row {index}" for index in batch["index"]]
    with pytest.warns(RuntimeWarning, match=r"leave out the columns name \(Utf8\)"):
        tensors = batch.torch()
    assert set(tensors) == {"index", "x"} and tensors["x"].shape == (10, 3)
    assert tensors["x"].data_ptr() == batch["x"].ctypes.data
    table = batch.arrow()
    assert isinstance(table, pa.RecordBatch) and table.column("x").to_pylist() == batch["x"].tolist()
    assert pa.record_batch(batch).equals(table)


def test_a_batch_has_names_and_no_positions(tmp_path):
    batch = next(iter(ParquetDataset(parquet.write(tmp_path, rows=10), batch_size=5)))
    with pytest.raises(
        TypeError, match=r"batch\[0\]: a batch is indexed by the name of a column, such as batch\['index'\]"
    ):
        batch[0]


def test_a_batch_outlives_its_data_set(tmp_path):
    data = ParquetDataset(parquet.write(tmp_path), batch_size=500)
    x, index = (lambda batch: (batch["x"], batch["index"]))(next(iter(data)))
    del data
    assert (x[:, 0] == index).all()


def test_columns_that_are_not_asked_for_are_not_read(tmp_path):
    data = ParquetDataset(parquet.write(tmp_path), batch_size=10, columns=["index"])
    assert data.schema == {"index": "Int64"}
    with pytest.raises(KeyError):
        next(iter(data))["x"]


def test_iterating_goes_on_where_it_stopped(tmp_path):
    data = ParquetDataset(parquet.write(tmp_path), batch_size=100)
    seen = list(next(iter(data))["index"])
    assert len(data) == 9
    seen += [int(index) for batch in data for index in batch["index"]]
    assert sorted(seen) == list(range(1000))


def test_progress_is_told(tmp_path):
    data = ParquetDataset(parquet.write(tmp_path), batch_size=100)
    next(iter(data))
    data._agree()
    progress = data.progress()
    assert (progress.done, progress.total, progress.steps_left) == (100, 1000, 9)
    assert "epoch 0: 100 of 1,000 rows (10%)" in str(progress)


def test_the_rate_of_one_process_is_that_of_all(tmp_path):
    data = ParquetDataset(parquet.write(tmp_path), batch_size=100)
    next(iter(data))
    assert data.progress().seconds_left is None
    data._agree()
    progress = data.progress()
    assert len(progress.rows_per_second_by_rank) == 1 and progress.total_rows_per_second > 0
    assert "by 1 workers" in str(progress)


def test_a_memory_of_part_of_the_stripes_gives_the_same_steps_with_a_warning(tmp_path):
    path = parquet.write(tmp_path, rows=6000, files=1, group=1500, width=64)
    whole = ParquetDataset(path, order="deterministic", global_batch_size=100, stripes=4, columns=["index", "x"])
    steps = [list(batch["index"]) for batch in whole]
    assert whole.passes == 1 and len(steps) == 60
    small = ParquetDataset(
        path, order="deterministic", global_batch_size=100, stripes=4, columns=["index", "x"], memory="100 KiB"
    )
    with pytest.warns(RuntimeWarning, match=r"each row group is decoded about \d+ times.*fewer stripes"):
        again = [list(batch["index"]) for batch in small]
    assert again == steps and small.passes > 4


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"order": "global", "batch_size": 1}, "order='global': must be 'local' or 'deterministic'"),
        ({}, "order='local' takes batch_size, the rows of this worker at each step, and no global_batch_size"),
        ({"order": "deterministic", "batch_size": 4}, "takes global_batch_size, the rows of all workers together"),
        ({"order": "deterministic", "global_batch_size": 0}, "global_batch_size=0: must be at least 1"),
        ({"order": "deterministic", "global_batch_size": 1, "stripes": 0}, "stripes=0: must be from 1"),
        ({"order": "deterministic", "global_batch_size": 1, "lanes": 0}, "stripes=0: must be from 1"),
        (
            {"order": "deterministic", "global_batch_size": 1, "stripes": 8, "lanes": 8},
            "stripes and lanes are two names of one option: pass stripes only",
        ),
        ({"order": "deterministic", "global_batch_size": 1, "weight": 2}, "weight and split are for order='local'"),
    ],
)
def test_an_order_takes_its_own_arguments(tmp_path, options, what):
    with pytest.raises((TypeError, ValueError), match=what):
        ParquetDataset(tmp_path, **options)


def test_lanes_are_the_former_name_of_stripes(tmp_path):
    path = parquet.write(tmp_path)
    options = {"order": "deterministic", "global_batch_size": 100}

    def steps(**more):
        return [batch.origins() for batch in ParquetDataset(path, **options, **more)]

    assert steps(lanes=12) == steps(stripes=12)
    assert steps(stripes=12) != steps(stripes=20)
    assert steps() == steps(stripes=5040)


def test_a_checkpoint_of_one_order_opens_as_the_other_between_epochs(tmp_path):
    path = parquet.write(tmp_path)
    local = {"batch_size": 100}
    stripes = {"order": "deterministic", "global_batch_size": 100, "stripes": 12}
    for former, later in [(local, stripes), (stripes, local)]:
        data, other = ParquetDataset(path, **former), ParquetDataset(path, **later)
        next(iter(data))
        data._agree()
        midst = data._save()
        list(data)
        data._agree()
        end = data._save()
        with pytest.raises(StateError, match="100 of 1000 rows into an epoch, and order .* can only begin with one"):
            other._restore(midst)
        other._restore(end)
        assert (other.epoch, other.progress().done) == (data.epoch, 1000)
        data.next_epoch()
        other.next_epoch()
        assert sorted(int(index) for batch in other for index in batch["index"]) == list(range(1000))


def test_a_checkpoint_of_other_files_of_the_same_shape_is_refused(tmp_path):
    def data(name):
        return ParquetDataset(tmp_path / name, batch_size=100, columns=["x"])

    def write(name, file, first):
        (tmp_path / name).mkdir()
        column = pa.array(np.arange(first, first + 3000, dtype=np.float32).reshape(1000, 3).tolist())
        pq.write_table(pa.table({"x": column}), tmp_path / name / file, compression="none", use_dictionary=False)

    write("set", "x.parquet", 0)
    write("values", "x.parquet", 5)
    write("name", "y.parquet", 0)
    shutil.copytree(tmp_path / "set", tmp_path / "copy")
    before = data("set")
    next(iter(before))
    before._agree()
    position = before.state_dict()
    for name in ("values", "name"):
        with pytest.raises(StateError, match="it is of another data set"):
            data(name).load_state_dict(position)
    copy = data("copy")
    copy.load_state_dict(position)
    assert sum(batch.rows for batch in copy) == 900


@pytest.mark.parametrize("order", [{"batch_size": 100}, {"order": "deterministic", "global_batch_size": 100}])
@pytest.mark.parametrize("stored", [pickle, torch], ids=["pickle", "torch"])
def test_a_position_comes_back_from_a_checkpoint_of_the_user(tmp_path, order, stored):
    path = parquet.write(tmp_path / "data")
    data = ParquetDataset(path, seed=3, **order)
    data.next_epoch()
    seen = [int(index) for batch in islice(data, 4) for index in batch["index"]]
    with pytest.raises(StateError, match=r"call commit\(\) first, then state_dict\(\)"):
        data.state_dict()
    data._agree()
    state = data.state_dict()
    assert (state["version"], state["epoch"], state["rows"]) == (1, 1, len(seen))
    if stored is pickle:
        state = pickle.loads(pickle.dumps(state))
    else:
        torch.save(state, tmp_path / "state.pt")
        state = torch.load(tmp_path / "state.pt", weights_only=True)
    other = ParquetDataset(path, seed=3, **order)
    # A round that has begun is no obstacle.
    next(iter(other))
    other.load_state_dict(state)
    assert (other.epoch, other.progress().done) == (1, len(seen))
    seen += [int(index) for batch in other for index in batch["index"]]
    assert sorted(seen) == list(range(1000))


def test_what_is_no_state_of_a_data_set_is_refused(tmp_path):
    data = ParquetDataset(parquet.write(tmp_path), batch_size=100)
    state = data.state_dict()
    for other in [{}, {**state, "version": 2}, {"version": 1}, {**state, "position": 3}, b"", None]:
        with pytest.raises(ValueError, match=r"pass what state_dict\(\) returned"):
            data.load_state_dict(other)
    mixture = Mixture([data])
    with pytest.raises(ValueError, match="0 positions for 1 data sets"):
        mixture.load_state_dict({"version": 1, "datasets": []})
    with pytest.raises(StateError, match="its order has another seed"):
        ParquetDataset(tmp_path, batch_size=100, seed=5).load_state_dict(state)


def test_a_mixture_comes_back(tmp_path):
    def mixture():
        sizes = {"a": 300, "b": 200}
        paths = [parquet.write(tmp_path / name, rows=rows, files=1) for name, rows in sizes.items()]
        return Mixture([ParquetDataset(path, batch_size=50) for path in paths])

    data = mixture()
    for _ in islice(data, 4):
        pass
    data._agree()
    other = mixture()
    other.load_state_dict(data.state_dict())
    assert sum(batch.rows for batch in other) == 500 - sum(part.progress().done for part in data.datasets)


def test_each_iteration_is_an_epoch(tmp_path):
    data = ParquetDataset(parquet.write(tmp_path), batch_size=100)
    orders = []
    for epoch in range(3):
        assert len(data) == 10
        orders.append([int(index) for batch in data for index in batch["index"]])
        assert data.epoch == epoch and sorted(orders[-1]) == list(range(1000))
    assert orders[0] != orders[1] != orders[2]
    # A loop that has left the epoch early goes on with it.
    next(iter(data))
    assert data.epoch == 3 and len(list(data)) == 9
    # epochs() counts, and a second iteration within one of its epochs has nothing to give.
    seen = []
    for epoch in data.epochs(6):
        assert len(list(data)) == 10
        with pytest.warns(RuntimeWarning, match="the epoch is over, so this iteration has no batches"):
            assert list(data) == []
        seen.append(epoch)
    assert seen == [4, 5] and data.epoch == 6


def test_a_mixture_and_a_loader_go_on_with_the_next_epoch(tmp_path):
    parts = [ParquetDataset(parquet.write(tmp_path / name), batch_size=100) for name in "ab"]
    mixture = Mixture(parts)
    assert [len(list(mixture)) for _ in range(2)] == [20, 20] and mixture.epoch == 1
    data = ParquetDataset(tmp_path / "a", batch_size=100, columns=["index"])
    loader = torch_loader(data)
    for _ in range(3):
        assert len(loader) == 10 and len(list(loader)) == 10


@pytest.mark.parametrize("rows", [0, 1])
def test_hardly_any_rows(tmp_path, rows):
    data = ParquetDataset(parquet.write(tmp_path, rows=rows, files=1), batch_size=10)
    assert [list(batch["index"]) for batch in data] == [[0]] * rows
    assert data.rows == rows


def test_what_is_wrong_is_named(tmp_path):
    path = parquet.write(tmp_path / "data")
    with pytest.raises(ValueError, match="batch_size=0: must be at least 1"):
        ParquetDataset(path, batch_size=0)
    with pytest.raises(ValueError, match="memory='lots'"):
        ParquetDataset(path, batch_size=1, memory="lots")
    with pytest.raises(DataError, match="no such column"):
        ParquetDataset(path, batch_size=1, columns=["y"])
    with pytest.raises(DataError, match="nowhere"):
        ParquetDataset(tmp_path / "nowhere", batch_size=1)
    with pytest.raises(DataError, match=r"other-\*\.parquet: no file matches this pattern"):
        ParquetDataset(tmp_path / "data" / "other-*.parquet", batch_size=1)


def test_patterns_are_the_files_that_match(tmp_path):
    path = parquet.write(tmp_path / "data", files=3)
    names = sorted(file.name for file in path.iterdir())
    assert ParquetDataset(path / "*.parquet", batch_size=1).files == 3
    assert ParquetDataset(tmp_path / "**" / names[0], batch_size=1).files == 1
    # What is named so is no pattern.
    (path / names[0]).rename(path / "[0].parquet")
    assert ParquetDataset([path / "[0].parquet", path / names[1]], batch_size=1).files == 2


def test_reading_alone_needs_no_init(tmp_path):
    program = f"""
from elasticrun.data import ParquetDataset
data = ParquetDataset({str(parquet.write(tmp_path))!r}, batch_size=100)
print(len(data), sum(batch.rows for _ in range(2) for batch in data))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "10 2000\n", done.stderr


def test_reading_before_init_in_a_job_names_what_was_called(start, tmp_path):
    text = start.job(
        "-np 2",
        f"""
        from elasticrun.data import ParquetDataset
        iter(ParquetDataset({str(parquet.write(tmp_path / "data"))!r}, batch_size=1))
        """,
    ).fail()
    assert "ParquetDataset.__iter__() was called before init(): call elasticrun.init() first" in text


def test_the_steps_of_an_epoch_are_known_before_the_first_round(start, tmp_path):
    text = start.job(
        "-np 3",
        f"""
        import elasticrun as e
        from elasticrun.data import ParquetDataset
        path = {str(parquet.write(tmp_path / "data"))!r}
        data = ParquetDataset(path, batch_size=100)
        other = ParquetDataset(path, order="deterministic", global_batch_size=64)
        e.init()
        print("BEFORE", len(data), len(other), flush=True)
        print("IN", len(list(data)), len(list(other)), flush=True)
        """,
    ).succeed()
    assert text.count("BEFORE 4 16") == text.count("IN 4 16") == 3, text


def test_a_file_that_goes_while_it_is_read_is_named(tmp_path):
    path = parquet.write(tmp_path, rows=5000, files=3)
    data = ParquetDataset(path, batch_size=100, shuffle=False, memory=1, threads=1)
    next(iter(data))
    (path / "part-2.parquet").unlink()
    with pytest.raises(DataError, match=r"part-2\.parquet"):
        list(data)


def test_a_state_that_was_not_told_is_not_saved(tmp_path):
    data = ParquetDataset(parquet.write(tmp_path), batch_size=100)
    state = elasticrun.ObjectState(data=data)
    next(iter(data))
    with pytest.raises(StateError, match="call commit"):
        state.save()


def test_a_loader_of_torch(tmp_path):
    data = ParquetDataset(parquet.write(tmp_path), batch_size=300)
    loader = torch_loader(data)
    batches = list(loader)
    assert [len(batch["index"]) for batch in batches] == [300, 300, 300, 100]
    assert sorted(int(index) for batch in batches for index in batch["index"]) == list(range(1000))
    with pytest.raises(TypeError, match="shuffle"):
        torch_loader(data, shuffle=True)


def test_a_loader_of_torch_collates_and_keeps_the_position(tmp_path):
    path = parquet.write(tmp_path)
    loader = torch_loader(ParquetDataset(path, batch_size=300), collate_fn=lambda tensors: tensors["index"].tolist())
    epoch = loader.state_dict()
    first = list(loader)
    assert sorted(index for batch in first for index in batch) == list(range(1000))
    assert list(loader) != first
    again = torch_loader(ParquetDataset(path, batch_size=300), collate_fn=lambda tensors: tensors["index"].tolist())
    again.load_state_dict(epoch)
    assert list(again) == first


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ([("index", "<", 100)], range(100)),
        ([("index", ">=", 10), ("index", "<", 20)], range(10, 20)),
        ([[("index", "==", 3)], [("name", "in", ["row 7", "row 8"])]], [3, 7, 8]),
        ([("index", "not in", range(1, 1000))], [0]),
        ([("index", "==", None)], []),
        ([("index", "in", np.array([3, 5]))], [3, 5]),
        ([("name", "==", np.str_("row 7")), ("index", "<", np.float32(8))], [7]),
    ],
)
def test_rows_that_are_not_wanted_are_left_out(tmp_path, where, kept):
    data = ParquetDataset(parquet.write(tmp_path), batch_size=50, where=where)
    rows = [int(index) for batch in data for index in batch["index"]]
    assert sorted(rows) == list(kept)
    assert data.progress().steps_left == 0


@pytest.mark.parametrize("prefetch", [0, 2])
def test_steps_are_full_and_end_with_the_rows_that_are_kept(tmp_path, prefetch):
    data = ParquetDataset(
        parquet.write(tmp_path), batch_size=10, where=[("index", "in", range(0, 1000, 40))], prefetch=prefetch
    )
    for _ in range(2):
        sizes = [batch.rows for batch in data]
        assert sizes[:3] == [10, 10, 5] and sum(sizes[3:]) == 0 and len(sizes) <= 4


def test_a_condition_that_is_none_is_told(tmp_path):
    path = parquet.write(tmp_path)
    for where, what in [
        ([("index", "~", 3)], 'operator "~" must be one of'),
        (["index"], "is no \\(column, operator, value\\)"),
        ([("index", "==", object())], "must be a truth value"),
        ([("index", "==", np.arange(3))], "must be a truth value"),
        ([("index", "<", 10**80)], "more than 76 digits"),
        ("index", "must be a list of"),
    ]:
        with pytest.raises((TypeError, ValueError), match=what):
            ParquetDataset(path, batch_size=1, where=where)
    with pytest.raises(DataError, match="cannot compare"):
        ParquetDataset(path, batch_size=1, where=[("index", "==", "three")])
