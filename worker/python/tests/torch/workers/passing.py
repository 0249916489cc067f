"""A model of which each host holds a copy, in two shards: passing.py MEGABYTES STEPS [lost].

Workers print a digest of their shard when a round begins, and of each commit. With `lost`, in the first round with a base, the
agent of the third host ends in the middle of the load, and its workers with it.
"""

import hashlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import elasticrun.torch as er
from elasticrun import _native

MEGABYTES, STEPS, *EVENTS = sys.argv[1:]
COLUMNS = 1 << 10
#: So that a shard has so many megabytes: a column of a matrix of floats, and half of the rows.
ROWS = int(MEGABYTES) * (1 << 20) * 2 // (4 * COLUMNS)

er.init()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(ROWS, COLUMNS))

    def forward(self):
        return self.weight.sum()


def build(mesh):
    model = Model()
    fully_shard(model, mesh=mesh)
    return model


def digest(state):
    values = state.model.weight.to_local().detach()
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:12]


state = er.elastic.ShardedState(build, mesh={"replicate": None, "shard": 2}, step=0)


class Loading:
    """Stands for the base of a round. Its host is lost when some bytes have arrived."""

    def __init__(self, base):
        self._base = base

    def __getattr__(self, name):
        return getattr(self._base, name)

    def fill(self, *args):
        if er.rank() == 4 and not os.path.exists(EVENTS[1]):
            open(EVENTS[1], "x").close()
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        return self._base.fill(*args)


if EVENTS:
    load_shards = _native.load_shards
    _native.load_shards = lambda: (base := load_shards()) and Loading(base)


@er.elastic.run
def train(state):
    print(f"round of {er.size()}: rank {er.rank()} at step {state.step} digest {digest(state)}", flush=True)
    while state.step < int(STEPS):
        with torch.no_grad():
            own = state.model.weight.to_local()
            # Each row of each step differs.
            own += torch.arange(own.numel()).reshape(own.shape) % 8191 * (state.step + 1)
        dist.barrier()
        time.sleep(0.2)
        state.step += 1
        shard = state.mesh.get_local_rank("shard")
        print(f"step {state.step} shard {shard} digest {digest(state)}", flush=True)
        state.commit()


train(state)
