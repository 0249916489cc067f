"""Rank 1 dies while others wait in a message or in a subgroup; the job continues without it.

missed.py CASE, of 4 workers:
  recv      rank 0 waits for a message of rank 1
  early     the same, and the two have no connection yet
  left      rank 0 waits for rank 2, which is alive and has gone on to the next round
  send      rank 0 has sent, and waits for rank 1 to take it
  group     rank 0 waits for rank 1 in an allreduce of [0, 1]
  future    the same, of a backward pass that holds only the future
  gone      rank 0 waits for rank 2 in an allreduce of [0, 2], in which all are alive
  made      rank 0 waits for rank 1 to come to a new group
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import elasticrun.torch as hvd
from elasticrun import lifecycle

case = sys.argv[1]
#: Who waits, and for whom.
waiting, peer = {"left": (0, 2), "gone": (0, 2)}.get(case, (0, 1))
hvd.init()
hvd.init_process_group("elasticrun")
state = hvd.elastic.TorchState(step=0)
kept = []


def wait():
    """What rank ``waiting`` does: no peer will make the call that goes with it."""
    if case in ("recv", "left"):
        dist.recv(torch.zeros(1), peer, tag=1)
    elif case == "early":
        dist.irecv(torch.zeros(1), peer, tag=1).wait()
    elif case == "send":
        dist.send(torch.zeros(64 * 2**20), peer)
    elif case == "made":
        dist.new_group([waiting, peer], use_local_synchronization=True)
    elif case == "future":
        model = DistributedDataParallel(torch.nn.Linear(2, 2), process_group=kept[0])
        model(torch.ones(1, 2)).sum().backward()
    else:
        dist.all_reduce(torch.zeros(1), group=kept[0])
    raise AssertionError("it was done without its peer")


@hvd.elastic.run
def train(state):
    rank, size = hvd.rank(), hvd.size()
    if lifecycle.world().round > 1:
        ring(rank, size)
        return
    if case in ("group", "future", "gone"):
        group = dist.new_group([waiting, peer])
        if rank in (waiting, peer):
            dist.all_reduce(torch.zeros(1), group=group)
            kept.append(group)
    elif case in ("recv", "left", "send"):
        # The two are connected.
        kept.append(dist.group.WORLD)
        if rank == waiting:
            dist.send(torch.zeros(1), peer)
        elif rank == peer:
            dist.recv(torch.zeros(1), waiting)
    if case == "future" and rank == peer:
        DistributedDataParallel(torch.nn.Linear(2, 2), process_group=kept[0])
    state.commit()
    store = hvd.Store(keys="round")
    if rank == 1:
        store.wait(["about to wait"])
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == waiting:
        store.set("about to wait", "")
        wait()
    # Until the round is aborted: the others do not come.
    hvd.barrier()


def ring(rank, size):
    """The next round has new messages and groups."""
    received = torch.zeros(1)
    sent = dist.isend(torch.full((1,), float(rank)), (rank + 1) % size)
    dist.recv(received, (rank - 1) % size)
    sent.wait()
    assert received.item() == (rank - 1) % size
    group = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        total = torch.ones(1)
        dist.all_reduce(total, group=group)
        assert total.item() == 2


train(state)
print(f"done rank {hvd.rank()} of {hvd.size()}", flush=True)
