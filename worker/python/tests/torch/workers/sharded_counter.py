"""Counts steps in a tensor that FSDP-like sharding divides: sharded_counter.py STOP.

After step K each element is its index plus the sum of 1 to K, so every worker can check its shard at any size. Ends when the file
STOP exists.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor

import elasticrun.torch as er
from elasticrun import _native

STOP = Path(sys.argv[1])
LENGTH = 10_007

er.init()


def say(line):
    # A single write, since this process may be killed between two writes.
    os.write(1, f"{line}\n".encode())


class Counter(torch.nn.Module):
    def __init__(self, mesh):
        super().__init__()
        values = torch.arange(LENGTH, dtype=torch.float64)
        self.values = torch.nn.Parameter(distribute_tensor(values, mesh, [Shard(0)]), requires_grad=False)

    def check(self, step):
        own = torch.arange(LENGTH, dtype=torch.float64).chunk(er.size())
        expected = own[er.rank()] if er.rank() < len(own) else torch.empty(0, dtype=torch.float64)
        assert torch.equal(self.values.to_local(), expected + step * (step + 1) // 2), step


state = er.elastic.ShardedState(Counter, step=0)


@er.elastic.run
def train(state):
    world = _native.world()
    state.model.check(state.step)
    say(f"ROUND {world.round} OF {world.size} RANK {world.rank} PID {os.getpid()} AT {state.step}")
    began = state.step
    while True:
        time.sleep(0.005)
        state.model.values.to_local().add_(state.step + 1)
        state.step += 1
        state.commit()
        if world.rank == 0:
            say(f"COMMITTED {state.step}")
        if state.step == began + 3 and world.rank == 0:
            say(f"TRAINS {world.round} OF {world.size}")
        over = torch.tensor(float(STOP.exists()))
        dist.all_reduce(over)
        if over:
            state.model.check(state.step)
            return


train(state)
say("ENDED")
