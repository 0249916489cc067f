"""A mixture of data sets in real jobs: each row of each once, through a failure."""

from __future__ import annotations

import re

import pytest
from support import parquet

from elasticrun.data import Mixture, ParquetDataset, audit

#: Trains on two data sets, with a sum for each that says which rows the model has seen.
SCRIPT = """
import os, signal, numpy as np
import elasticrun as e
from elasticrun.data import Mixture, ParquetDataset

e.init()
parts = [ParquetDataset(path, batch_size=10, seed=7) for path in {paths}]
state = e.ObjectState(data=Mixture(parts, weights=[3, 1]), seen=[np.zeros(rows) for rows in {rows}], steps=0)

@e.elastic.run
def train(state):
    for epoch in state.data.epochs(2):
        for batch in state.data:
            {strike}
            sources = e.allgather(np.array([batch.source]), name="source")
            assert len(set(sources.tolist())) == 1, sources
            seen = np.zeros(len(state.seen[batch.source]))
            np.add.at(seen, batch["index"], 1)
            seen = e.allreduce(seen, op=e.Sum, name="seen")
            state.seen = [have + seen if place == batch.source else have for place, have in enumerate(state.seen)]
            state.steps += 1
            state.commit()
    return state.seen

assert all((seen == 2).all() for seen in train(state))
print("EACH ROW TWICE")
"""

KILL = """
            if e.world().round == 1 and e.rank() == 1 and state.steps == 9:
                os.kill(os.getpid(), signal.SIGKILL)"""


@pytest.mark.parametrize("strike", ["pass", KILL])
def test_each_row_of_each_data_set_is_trained_on_once(start, tmp_path, strike):
    rows = [400, 150]
    paths = [str(parquet.write(tmp_path / f"set {count}", rows=count)) for count in rows]
    script = SCRIPT.format(paths=paths, rows=rows, strike=strike)
    text = start.job("-np 3 --min-np 2", script).succeed()
    assert text.count("EACH ROW TWICE") >= 2


#: Data sets of 400 and 150 rows repeat, and an epoch has 12 batches. A single write, since processes may be killed.
REPEATS = """
import os, signal, numpy as np
import elasticrun as e
from elasticrun.data import Mixture, ParquetDataset

e.init()
parts = [ParquetDataset(path, batch_size=10, seed=7, audit=path + " audit") for path in {paths}]
state = e.ObjectState(data=Mixture(parts, weights=[1, 3], steps=12), sources=[], steps=0)

@e.elastic.run
def train(state):
    for epoch in state.data.epochs(5):
        for batch in state.data:
            {strike}
            sources = e.allgather(np.array([batch.source]), name="source")
            assert len(set(sources.tolist())) == 1, sources
            state.sources = state.sources + [(state.data.epoch, batch.source)]
            state.steps += 1
            if state.steps % 2 == 0:
                state.commit()
    return state.sources

sources = train(state)
for epoch in range(5):
    of_epoch = [source for of, source in sources if of == epoch]
    assert of_epoch == [1, 1, 0, 1] * 3 or (len(of_epoch), sum(of_epoch)) == (12, 9), (epoch, of_epoch)
state.commit()
os.write(1, f"EPOCHS {{[part.epoch for part in parts]}} STEPS {{state.steps}}\\n".encode())
"""


@pytest.mark.parametrize("strike", ["pass", KILL])
def test_data_sets_that_repeat_keep_their_weights_and_read_each_row_once_in_each_of_their_epochs(
    start, tmp_path, strike
):
    rows = [400, 150]
    paths = [str(parquet.write(tmp_path / f"set {count}", rows=count)) for count in rows]
    script = REPEATS.format(paths=paths, strike=strike)
    text = start.job("-np 3 --min-np 2", script).succeed()
    found = set(re.findall(r"EPOCHS \[(\d+), (\d+)\] STEPS (\d+)", text))
    assert len(found) == 1 and next(iter(found))[2] == "60", text
    # 45 batches of 150 rows: about 8 epochs of 5 steps with three workers; the other has 15 of its steps.
    small = int(next(iter(found))[1])
    assert small >= 5, text
    for count, path in zip(rows, paths, strict=True):
        logged = audit.read(f"{path} audit")
        assert logged.repeated() == []
        *whole, last = [len(found) for _, found in sorted(logged.rows.items())]
        assert whole == [count] * len(whole) and 0 < last <= count


def test_without_a_job_data_sets_repeat_in_proportion(tmp_path):
    large, small = (parquet.write(tmp_path / f"set {count}", rows=count) for count in (400, 30))
    data = Mixture([ParquetDataset(large, batch_size=10), ParquetDataset(small, batch_size=10)], [1, 1], steps=20)
    rows = {0: [], 1: []}
    for epoch in range(2):
        assert len(data) == 20
        sources = []
        for batch in data:
            sources.append(batch.source)
            rows[batch.source] += batch["index"].tolist()
        assert sources == [0, 1] * 10 and data.epoch == epoch
        assert len(data) == 20
    # The large one goes on, the small one is in its seventh epoch.
    assert len(set(rows[0])) == 200
    assert all(sorted(rows[1][first : first + 30]) == list(range(30)) for first in range(0, 180, 30))


def test_a_position_of_a_mixture_that_repeats(start, tmp_path):
    paths = [str(parquet.write(tmp_path / f"set {count}", rows=count)) for count in (100, 30)]
    # In a process of its own: without init() there are no commits.
    start.alone(
        f"""
        import pytest
        from elasticrun.data import Mixture, ParquetDataset

        def mixture(steps=16):
            return Mixture(
                [ParquetDataset(path, batch_size=10, shuffle=False) for path in {paths}], [1, 1], steps=steps
            )

        def take(data, count):
            return [(batch.source, batch["index"].tolist()) for _, batch in zip(range(count), data)]

        first = mixture()
        list(first)
        state = first.state_dict()
        expected = take(first, 16)
        second = mixture()
        second.load_state_dict(state)
        # It was at the end of epoch 0.
        assert list(second) == [] and second.epoch == 0
        assert take(second, 16) == expected and second.epoch == 1
        with pytest.raises(ValueError, match="data sets repeat in one of the two mixtures only"):
            mixture(None).load_state_dict(state)
        """
    )


def test_mixtures_that_cannot_repeat_are_refused(tmp_path):
    data = ParquetDataset(parquet.write(tmp_path / "data", rows=10), batch_size=10)
    with pytest.raises(ValueError, match=r"steps=0\): must be at least 1"):
        Mixture([data], steps=0)
    none = ParquetDataset(tmp_path / "data", batch_size=10, row_groups=[])
    with pytest.raises(ValueError, match="data set 1 has no rows"):
        Mixture([data, none], steps=5)
