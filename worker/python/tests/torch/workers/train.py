"""Trains through changes of the world: train.py MODE STEPS [FAIL_RANK FAIL_STEP].

STEPS may be N@SIZE: N steps once the world has SIZE workers, however long that takes.
MODE is hvd (DistributedOptimizer) or a back end of torch.distributed (DistributedDataParallel). Rank FAIL_RANK
of the first round kills itself after the commit of FAIL_STEP. Each step sees one batch of the whole data,
whatever the number of workers, so the result is that of one process.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import elasticrun.torch as hvd
from elasticrun import lifecycle

mode = sys.argv[1]
steps, grown = (int(word or 1) for word in sys.argv[2].partition("@")[::2])
fail_rank, fail_step = (int(word) for word in (sys.argv[3:5] or ("-1", "-1")))
BATCH = 12

hvd.init()
# Different on all ranks: the first sync makes them equal.
torch.manual_seed(hvd.rank())
network = torch.nn.Sequential(torch.nn.Linear(6, 50), torch.nn.Tanh(), torch.nn.Linear(50, 3))
if hvd.rank() == 0:
    torch.manual_seed(17)
    for module in network:
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
if mode == "hvd":
    optimizer = hvd.DistributedOptimizer(optimizer, network.named_parameters())
else:
    hvd.init_process_group(mode)

state = hvd.elastic.TorchState(network, optimizer, step=0, goal=None, seen=torch.zeros(1), history=[])


def batch(step):
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, 6, generator=generator)
    return inputs, inputs[:, :3].sin()


@hvd.elastic.run
def train(state):
    world = lifecycle.world()
    print(f"round {world.round}: rank {world.rank} of {world.size} from step {state.step}", flush=True)
    if state.goal is None and world.size >= grown:
        state.goal = state.step + steps
    model = network if mode == "hvd" else DistributedDataParallel(network)
    if mode != "hvd":
        assert (dist.get_rank(), dist.get_world_size()) == (world.rank, world.size)
        assert dist.get_backend() == mode
    while state.goal is None or state.step < state.goal:
        inputs, wanted = batch(state.step)
        share = slice(world.rank * BATCH // world.size, (world.rank + 1) * BATCH // world.size)
        optimizer.zero_grad()
        # A sum over the share times the ranks: the average over ranks is that of the batch.
        loss = (model(inputs[share]) - wanted[share]).square().sum() / BATCH * world.size
        loss.backward()
        optimizer.step()
        state.step += 1
        state.seen += len(inputs)
        state.history.append((world.size, state.step))
        state.commit()
        if world.round == 1 and world.rank == fail_rank and state.step == fail_step:
            os.kill(os.getpid(), signal.SIGKILL)
        if world.rank == 0:
            print(f"committed {state.step} with {world.size}", flush=True)


train(state)
total = sum(parameter.double().abs().sum().item() for parameter in network.parameters())
print(
    f"done rank {hvd.rank()} of {hvd.size()}: step {state.step} seen {int(state.seen)} sum {total:.9f}",
    flush=True,
)
assert [step for _, step in state.history] == list(range(1, state.goal + 1))
