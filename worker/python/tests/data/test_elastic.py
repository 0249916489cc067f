"""Data sets in real jobs: each row once, through failures and resizes."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support import parquet
from support.audits import committed

from elasticrun.data import ParquetDataset, audit

#: Trains on the rows of an epoch, with a sum that says which rows the model has seen.
SCRIPT = """
import os, signal, time, numpy as np
import elasticrun as e
from elasticrun.data import ParquetDataset

e.init()
data = ParquetDataset("{data}", seed=7, audit="{audit}", **{more})
state = e.ObjectState(data=data, seen=np.zeros({rows}), steps=0)

@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "LEFT", data.progress().total - data.progress().done)
    for epoch in state.data.epochs({epochs}):
        for batch in state.data:
            {strike}
            seen = np.zeros({rows})
            np.add.at(seen, batch["index"], 1)
            state.seen = state.seen + e.allreduce(seen, op=e.Sum, name="seen")
            state.steps += 1
            state.commit()
            {after}
    return state.seen

seen = train(state)
assert (seen == {epochs}).all(), np.unique(seen, return_counts=True)
print("EACH ROW", {epochs}, "TIMES IN", state.steps, "STEPS")
"""


#: Options of order "deterministic". A step has the rows of five workers in order "local".
STRIPES = {"order": "deterministic", "global_batch_size": 50, "stripes": 60}


def script(tmp_path, strike="pass", after="pass", rows=1000, epochs=1, more=None, **data):
    path = parquet.write(tmp_path / "data", rows=rows, **data)
    return SCRIPT.format(
        data=path,
        audit=tmp_path / "audit",
        strike=strike,
        after=after,
        rows=rows,
        epochs=epochs,
        more={"batch_size": 10, **(more or {})} if more is not STRIPES else STRIPES,
    )


def check(tmp_path, rows=1000, epochs=1):
    seen = audit.read(tmp_path / "audit")
    assert seen.repeated() == []
    assert [len(seen.rows[epoch]) for epoch in range(epochs)] == [rows] * epochs
    return seen


def test_workers_share_the_rows_of_each_epoch(start, tmp_path):
    text = start.job("-np 3", script(tmp_path, epochs=2)).succeed()
    assert text.count("EACH ROW 2 TIMES IN 68 STEPS") == 3
    assert not check(tmp_path, epochs=2).void


def test_survivors_of_a_sigkill_go_on_with_what_is_left(start, tmp_path):
    strike = """
            if e.world().round == 1 and e.rank() == 2 and state.steps == 7:
                os.kill(os.getpid(), signal.SIGKILL)"""
    text = start.job(
        "-np 4 --min-np 2 -H localhost:4 --failure-domain slot --blacklist forever", script(tmp_path, strike)
    ).succeed()
    assert start_of(text, 2) == {(rank, 3, 720) for rank in range(3)}
    # Seven steps of four workers, then 720 rows of three workers.
    assert text.count("EACH ROW 1 TIMES IN 31 STEPS") == 3
    check(tmp_path)


def test_a_row_that_is_not_committed_is_read_again(start, tmp_path):
    strike = """
            if e.world().round == 1 and state.steps == 5:
                e.barrier()
                if e.rank() == 0:
                    os.kill(os.getpid(), signal.SIGKILL)"""
    text = start.job(
        "-np 2 --min-np 1 -H localhost:2 --failure-domain slot --blacklist forever", script(tmp_path, strike)
    ).succeed()
    assert start_of(text, 2) == {(0, 1, 900)}
    check(tmp_path)


def test_hosts_that_come_get_their_share(start, tmp_path):
    change = start.hosts("localhost:1\n")
    after = """
            while e.size() == 1 and state.steps == 5:
                print("ALONE", flush=True)
                time.sleep(0.05)
                state.check_host_updates()"""
    job = start.job(
        f"-np 1 --min-np 1 --host-discovery-script {start.discovery} --discovery-interval 50ms --last-call 50ms",
        script(tmp_path, after=after),
    )
    job.until("ALONE")
    change("localhost:1\n127.0.0.1:1\n")
    text = job.succeed()
    assert start_of(text, 2) == {(0, 2, 950), (1, 2, 950)}
    assert text.count("EACH ROW 1 TIMES IN 53 STEPS") == 2
    assert not check(tmp_path).void


@pytest.mark.parametrize("workers", [1, 5])
def test_more_workers_than_rows(start, tmp_path, workers):
    text = start.job(f"-np {workers}", script(tmp_path, rows=3, files=1)).succeed()
    assert text.count("EACH ROW 1 TIMES IN 1 STEPS") == workers
    check(tmp_path, rows=3)


def test_a_worker_without_rows_has_columns_of_lists(start, tmp_path):
    program = script(tmp_path, rows=3, files=1, after='assert batch["lists"].shape == (batch.rows, 2), batch.rows')
    (path,) = (tmp_path / "data").iterdir()
    lists = pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32()))
    pq.write_table(pq.read_table(path).append_column("lists", lists), path)
    text = start.job("-np 4", program).succeed()
    assert text.count("EACH ROW 1 TIMES IN 1 STEPS") == 4


def test_an_empty_data_set_has_no_step(start, tmp_path):
    text = start.job("-np 2", script(tmp_path, rows=0, files=1)).succeed()
    assert text.count("EACH ROW 1 TIMES IN 0 STEPS") == 2


def test_row_groups_may_stay_whole(start, tmp_path):
    text = start.job("-np 3", script(tmp_path, more={"split": "never"})).succeed()
    assert text.count("EACH ROW 1 TIMES") == 3
    check(tmp_path)


@pytest.mark.parametrize("order", ["local", "deterministic"])
def test_all_workers_lost_go_on_with_model_and_rows_of_one_commit(start, tmp_path, order):
    # The last worker fails in the middle of a step that others may have committed. The agents live and keep the commits.
    strike = """
            if e.world().round == 1 and state.steps == 6:
                os._exit(3)"""
    deterministic = order == "deterministic"
    text = start.job(
        "-np 2 --min-np 2 -H localhost:1,127.0.0.1:1 --max-restarts 1 --blacklist-cooldown-range 0 1",
        script(tmp_path, strike, more=STRIPES if deterministic else None),
    ).succeed()
    done = 6 * (50 if deterministic else 20)
    assert start_of(text, 1) == {(rank, 2, 1000) for rank in range(2)}
    (later,) = {
        int(round_) for round_, left in re.findall(r"ROUND (\d+) .* LEFT (\d+)", text) if int(left) == 1000 - done
    }
    assert start_of(text, later) == {(rank, 2, 1000 - done) for rank in range(2)}
    # The model has seen each row once, including the steps before the restart.
    assert text.count(f"EACH ROW 1 TIMES IN {20 if deterministic else 50} STEPS") == 2
    check(tmp_path)


@pytest.mark.parametrize("workers", [1, 3])
def test_steps_are_the_same_for_any_number_of_workers(start, tmp_path, workers):
    text = start.job(f"-np {workers}", script(tmp_path, epochs=2, more=STRIPES)).succeed()
    assert text.count("EACH ROW 2 TIMES IN 40 STEPS") == workers
    expected = ParquetDataset(tmp_path / "data", seed=7, **STRIPES)
    expected._enter_shard(0, 1)
    steps = [set(batch.origins()) for _ in expected.epochs(2) for batch in expected._batches()]
    commits = [rows for _, rows in sorted(committed(tmp_path / "audit").items())]
    assert commits == steps


def test_more_workers_than_stripes_are_told_what_would_do(start, tmp_path):
    told = start.job("-np 3", script(tmp_path, more=STRIPES).replace("'stripes': 60", "'stripes': 2")).fail(1)
    assert "3 workers share 2 stripes: set stripes to 5040, which changes the order" in told


def test_the_rates_of_all_workers_are_known(start, tmp_path):
    after = """
            if state.steps == 30:
                progress = data.progress()
                rates = progress.rows_per_second_by_rank
                assert len(rates) == 2 and min(rates) > 0 and progress.seconds_left > 0, rates
                assert sum(rates) == progress.total_rows_per_second, rates
                print("RATES of", progress)"""
    text = start.job("-np 2", script(tmp_path, after=after)).succeed()
    assert (
        len(re.findall(r"RATES of epoch 0: 600 of 1,000 rows \(60%\), .* rows/s here, .* by 2 workers, .* left", text))
        == 2
    )


#: Stores a checkpoint after seven steps and ends, or goes on from one to the end of the epoch.
WITH_CHECKPOINT = """
import os, pickle, numpy as np
import elasticrun as e
from elasticrun.data import ParquetDataset

e.init()
data = ParquetDataset("{data}", seed=7, **{order})
state = e.ObjectState(data=data, seen=np.zeros(1000), steps=0)
if os.path.exists("{checkpoint}"):
    with open("{checkpoint}", "rb") as file:
        stored = pickle.load(file)
    data.load_state_dict(stored["data"])
    state.seen, state.steps = stored["seen"], stored["steps"]

@e.elastic.run
def train(state):
    print("BEGINS AT", state.data.progress().done)
    for batch in state.data:
        seen = np.zeros(1000)
        np.add.at(seen, batch["index"], 1)
        state.seen = state.seen + e.allreduce(seen, op=e.Sum, name="seen")
        state.steps += 1
        state.commit()
        if state.steps == 7:
            if e.rank() == 0:
                with open("{checkpoint}", "wb") as file:
                    pickle.dump(dict(data=state.data.state_dict(), seen=state.seen, steps=7), file)
            return
    assert (state.seen == 1).all(), np.unique(state.seen, return_counts=True)
    print("EACH ROW ONCE IN", state.steps, "STEPS")

train(state)
"""


@pytest.mark.parametrize("order", [{"batch_size": 10}, STRIPES])
def test_a_job_goes_on_from_a_checkpoint_of_the_user_with_fewer_workers(start, tmp_path, order):
    path = parquet.write(tmp_path / "data")
    program = WITH_CHECKPOINT.format(data=path, checkpoint=tmp_path / "checkpoint", order=order)
    assert start.job("-np 3", program).succeed().count("BEGINS AT 0") == 3
    done = 350 if order is STRIPES else 210
    text = start.job("-np 2", program).succeed()
    assert text.count(f"BEGINS AT {done}") == 2
    assert text.count(f"EACH ROW ONCE IN {20 if order is STRIPES else 47} STEPS") == 2


@pytest.mark.parametrize("has_other_rows", [True, False])
def test_another_data_set_on_one_worker_is_told(start, tmp_path, has_other_rows):
    if has_other_rows:
        parquet.write(tmp_path / "other", rows=999)
    else:
        write_other_values(tmp_path)
    text = script(tmp_path).replace(f'ParquetDataset("{tmp_path / "data"}"', "ParquetDataset(PATH")
    text = f'import os\nPATH = "{tmp_path}/" + ("other" if os.environ["HOROVOD_RANK"] == "1" else "data")\n' + text
    told = start.job("-np 2", text).fail(1)
    assert "another data set" in told or "elsewhere in the data" in told


def write_other_values(tmp_path):
    """A data set whose row groups have the rows and bytes of the other one."""
    parquet.write(tmp_path / "data")
    for path in parquet.write(tmp_path / "other").iterdir():
        before = pq.read_metadata(path)
        table = pq.read_table(path)
        negative = pa.FixedSizeListArray.from_arrays(pc.negate(table["x"].combine_chunks().flatten()), 4)
        pq.write_table(table.set_column(1, "x", negative), path, row_group_size=60)
        after = pq.read_metadata(path)
        groups = range(before.num_row_groups)
        assert [before.row_group(group).total_byte_size for group in groups] == [
            after.row_group(group).total_byte_size for group in groups
        ]


def test_a_data_set_outside_of_the_state_is_told(start, tmp_path):
    strike = """
            if e.world().round == 1 and e.rank() == 1 and state.steps == 2:
                os.kill(os.getpid(), signal.SIGKILL)"""
    text = script(tmp_path, strike).replace("e.ObjectState(data=data, ", "e.ObjectState(")
    text = text.replace("state.data", "data")
    told = start.job("-np 2 --min-np 1 -H localhost:2 --failure-domain slot --blacklist forever", text).fail(1)
    assert "make it an attribute of the state" in told


def start_of(text, round_):
    """(rank, size, rows left) of those who began the round."""
    lines = (line.split() for line in text.splitlines() if "ROUND" in line)
    words = (line[next(place for place, word in enumerate(line) if word.endswith("ROUND")) :] for line in lines)
    return {(int(word[3]), int(word[5]), int(word[7])) for word in words if int(word[1]) == round_}


@pytest.mark.parametrize("order", [{}, STRIPES])
@pytest.mark.parametrize(
    "more",
    [
        "where=[('index', '<', 400)]",
        "row_groups=lambda group: group.index % 2",
        "where=[('index', '>=', 500)], row_groups=lambda group: group.index < 3",
    ],
)
def test_the_audit_of_a_part_of_the_data_set(start, tmp_path, capsys, order, more):
    """Rows that a predicate drops are processed too, and the row groups are those that were selected."""
    data = parquet.write(tmp_path / "data", rows=1000)
    options = ", ".join(f"{name}={value!r}" for name, value in (order or {"batch_size": 10}).items())
    text = start.job(
        "-np 3 --min-np 2 -H localhost:3 --failure-domain slot --blacklist forever",
        f"""
        import os, signal
        import elasticrun as e
        from elasticrun.data import ParquetDataset

        e.init()
        data = ParquetDataset("{data}", seed=7, audit="{tmp_path}/audit", {more}, {options})
        state = e.ObjectState(data=data, steps=0)

        @e.elastic.run
        def train(state):
            for epoch in state.data.epochs(2):
                for batch in state.data:
                    if (e.world().round, e.rank(), state.steps) == (1, 1, 4):
                        os.kill(os.getpid(), signal.SIGKILL)
                    e.barrier()
                    state.steps += 1
                    state.commit()

        train(state)
        """,
    ).succeed()
    command = [str(tmp_path / "audit"), "--epochs", "2"]
    assert audit.main(command) == 0, (capsys.readouterr().out, text)
    assert audit.main([*command, str(data)]) == 0
    assert ("the job read a selection of the data set" in capsys.readouterr().out) == ("row_groups" in more)
    assert audit.main([*command, str(parquet.write(tmp_path / "other", rows=100))]) == 2
    # A line that holds rows of a valid commit.
    valid = audit.read(tmp_path / "audit").valid
    path, lines, index = next(
        (path, lines, index)
        for path in (tmp_path / "audit").glob("*.jsonl")
        for lines in [path.read_text().splitlines(keepends=True)]
        for index, line in enumerate(map(json.loads, lines))
        if tuple(map(int, line.get("commit", "0.0.0").split("."))) in valid and line["spans"]
    )
    path.write_text("".join(lines[:index] + lines[index + 1 :]))
    assert audit.main(command) == 1


def test_data_sets_of_the_same_files_share_an_audit_directory(start, tmp_path, capsys):
    data = parquet.write(tmp_path / "data", rows=1000)
    text = start.job(
        "-np 2",
        f"""
        import elasticrun as e
        from elasticrun.data import ParquetDataset

        e.init()

        def read(where):
            return ParquetDataset("{data}", batch_size=50, seed=7, audit="{tmp_path}/audit", where=[where])

        state = e.ObjectState(train=read(("index", "<", 800)), validation=read(("index", ">=", 800)))

        @e.elastic.run
        def run(state):
            for data in (state.train, state.validation):
                for epoch in data.epochs(2):
                    for batch in data:
                        e.barrier()
                        state.commit()

        run(state)
        """,
    ).succeed()
    assert audit.main([str(tmp_path / "audit"), str(data), "--epochs", "2"]) == 0, (capsys.readouterr().out, text)
    assert capsys.readouterr().out.count("epoch 1: 1,000 rows committed, 0 of them more than once, 0 missing") == 2


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_epoch_ends_once_no_worker_has_rows_that_are_kept(start, tmp_path, prefetch):
    """Without a commit."""
    data = parquet.write(tmp_path / "data", rows=4000, files=4, group=100)
    text = start.job(
        "-np 2",
        f"""
        import elasticrun as e
        from elasticrun.data import ParquetDataset

        e.init()
        kept = [("index", "in", range(0, 4000, 40))]
        state = e.ObjectState(data=ParquetDataset("{data}", batch_size=10, where=kept, prefetch={prefetch}))

        @e.elastic.run
        def train(state):
            for epoch in range(2):
                sizes = [batch.rows for batch in state.data]
                kept = e.allreduce(float(sum(sizes)), op=e.Sum, name="kept")
                print(f"EPOCH {{state.data.epoch}} KEPT {{kept:.0f}} STEPS {{len(sizes)}} FULL {{sizes.count(10)}}")
            state.commit()

        train(state)
        """,
    ).succeed()
    found = re.findall(r"EPOCH (\d) KEPT (\d+) STEPS (\d+) FULL (\d+)", text)
    assert sorted(epoch for epoch, *_ in found) == ["0", "0", "1", "1"], text
    # Without an end there would be 200.
    assert {(kept, steps) for _, kept, steps, _ in found} == {("100", "16")}, text
    assert all(int(full) >= 3 for *_, full in found), text
