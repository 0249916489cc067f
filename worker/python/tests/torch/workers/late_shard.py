"""A commit of a shard whose bytes were not final when it was begun, as those of a GPU: behind the end of the round it is not sealed."""

import os
import signal
import threading

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import elasticrun.torch as er
from elasticrun import _abort, lifecycle
from elasticrun.torch import abort
from elasticrun.torch.elastic.sharded.writing import Writing


def seal(writing):
    writing.wait()
    return writing.opened.seal(must_be_whole=True)


def build(mesh):
    model = torch.nn.Linear(4, 4)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


Writing.is_copied = lambda writing: False
Writing.seal = seal
er.init()
er.init_process_group("gloo")
state = er.elastic.ShardedState(build, step=0)
over = threading.Event()
abort.listen()
# Called after torch's groups have been.
_abort.watch(lambda round: over.set())


@er.elastic.run
def train(state):
    if lifecycle.world().round > 1:
        print("round 2 from", state.step, flush=True)
        return
    for _ in range(2):
        state.step += 1
        state.commit(async_=True)
    dist.barrier()
    if er.rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    assert over.wait(60)
    state._settle()
    raise AssertionError("the commit of a round that is over was kept")


train(state)
