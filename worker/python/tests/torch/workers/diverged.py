"""Workers that commit different states: diverged.py MODE. Rank 2 of the first round dies, and the others compare theirs.

MODE is shards (each has parameters of its own), or harmless (statistics, a text and rounding differ).
"""

import os
import signal
import sys

import torch

import elasticrun.torch as hvd
from elasticrun import lifecycle

mode = sys.argv[1]
hvd.init()
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
state = hvd.elastic.TorchState(model, step=0, seed=torch.zeros(2), note="")


@hvd.elastic.run
def train(state):
    world, rank = lifecycle.world(), hvd.rank()
    print(f"from step {state.step} note {state.note!r}", flush=True)
    while state.step < 4:
        hvd.allreduce(torch.ones(1))
        with torch.no_grad():
            if mode == "shards":
                model[0].weight.normal_(generator=torch.Generator().manual_seed(rank))
            else:
                model[0].weight.mul_(1 + 1e-6 * rank)
        model[1].running_mean.fill_(rank)
        state.seed.fill_(rank)
        state.note = f"of {rank}" * rank
        state.step += 1
        state.commit()
        if state.step == 2 and world.round == 1 and rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)


train(state)
print(f"done with note {state.note!r}", flush=True)
