"""gloo's operations have no abort: rank 2 waits for rank 0, which has left for the next round.

Rank 1 of the first round dies once rank 2 waits. Rank 0 hears of it and goes on; it still refers to the old group,
whose connections are therefore open.
"""

import os
import signal

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _world

import elasticrun.torch as hvd
from elasticrun import lifecycle
from elasticrun.torch import connections

kept = []
hvd.init()
hvd.init_process_group("gloo")
state = hvd.elastic.TorchState(step=0)


@hvd.elastic.run
def train(state):
    round = lifecycle.world().round
    if round > 1:
        return
    pair = dist.new_group([0, 2], backend="gloo")
    kept.extend([dist.group.WORLD, pair, *_world.pg_map])
    # Each connection has two ends: one to each other in the group of all, one in that of two.
    assert len(connections.open_connections(round)) == (2 if hvd.rank() == 1 else 3)
    state.commit()
    store = hvd.Store(keys="round")
    if hvd.rank() == 1:
        store.wait(["rank 2 is about to wait"])
        os.kill(os.getpid(), signal.SIGKILL)
    if hvd.rank() == 2:
        store.set("rank 2 is about to wait", "")
        dist.recv(torch.zeros(1), src=0, group=pair)
        raise AssertionError("no rank sent")
    # Until the round is aborted: the others do not come.
    hvd.barrier()


train(state)
print(f"done rank {hvd.rank()} of {hvd.size()}", flush=True)
