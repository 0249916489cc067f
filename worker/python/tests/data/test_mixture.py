"""A mixture of data sets in real jobs: each row of each once, through a failure."""

from __future__ import annotations

import pytest
from support import parquet

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
