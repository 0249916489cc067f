"""Pairs of tensor parallel workers read a data set: sharded_rows.py DATA AUDIT ROWS FAIL_RANK [behind].

Rank FAIL_RANK of the first round kills itself in the fifth step. The model counts how often it has seen each row. With `behind`,
commits are asynchronous and as late as they can be.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

import elasticrun.torch as er
from elasticrun import _native
from elasticrun.data import ParquetDataset
from elasticrun.torch.elastic.sharded.writing import Writing

DATA, AUDIT, ROWS, FAIL_RANK = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
BEHIND = sys.argv[5:] == ["behind"]
if BEHIND:
    Writing.is_copied = lambda writing: False

er.init()


class Counts(torch.nn.Module):
    """How often each row was seen. Each tensor parallel worker holds the counts of a half of the rows."""

    def __init__(self, mesh):
        super().__init__()
        self.seen = torch.nn.Parameter(
            distribute_tensor(torch.zeros(ROWS), mesh["tensor"], [Shard(0)]), requires_grad=False
        )

    def add(self, rows, mesh):
        counts = torch.zeros(ROWS)
        counts.index_add_(0, rows, torch.ones(len(rows)))
        dist.all_reduce(counts, group=mesh.get_group("data"))
        self.seen.to_local().add_(counts.chunk(2)[mesh.get_local_rank("tensor")])


def build(mesh):
    model = Counts(mesh)
    model.steps = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([model.steps], lr=1.0)
    model.steps.grad = -torch.ones(())
    return model, optimizer


data = ParquetDataset(DATA, seed=7, batch_size=10, audit=AUDIT)
state = er.elastic.ShardedState(build, mesh={"data": None, "tensor": 2}, data=data, steps=0)


@er.elastic.run
def train(state):
    print(f"round of {er.size()}: rank {er.rank()} reads share {state.data_rank} of {state.data_size}", flush=True)
    for batch in state.data:
        if _native.world().round == 1 and state.steps == 4 and er.rank() == FAIL_RANK:
            os.kill(os.getpid(), signal.SIGKILL)
        state.model.add(torch.as_tensor(batch["index"]), state.mesh)
        state.optimizer.step()
        state.steps += 1
        state.commit(async_=BEHIND)
    seen = state.model.seen
    assert isinstance(seen, DTensor)
    assert state.model.steps == state.steps
    print(
        f"done rank {er.rank()} of {er.size()}: {seen.full_tensor().unique().tolist()} in {state.steps} steps",
        flush=True,
    )


train(state)
