"""An operation that gloo loses: its peer was ready to receive, and cannot be written to when it dies.

forgotten.py VICTIM: that rank of the first round calls the collective, stops, and is killed once rank 0, which cannot
write to it any more, is in its operation.
"""

import os
import signal
import socket
import struct
import sys
import time

import torch
import torch.distributed as dist

import elasticrun.torch as hvd
from elasticrun import lifecycle
from elasticrun.torch import connections, gloo_shutdown

victim = int(sys.argv[1])
hvd.init()
hvd.init_process_group("gloo")
state = hvd.elastic.TorchState(step=0)


def until(holds):
    while not holds():
        time.sleep(0.001)


def ends():
    """The sockets of the group, as duplicates."""
    round = lifecycle.world().round
    return [socket.socket(fileno=os.dup(end.fileno())) for _, end in connections._connections(round)]


def acknowledged(end):
    """Bytes that the peer's kernel has."""
    info = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    return struct.unpack_from("=Q", info, 120)[0]


def stopped(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"


@hvd.elastic.run
def train(state):
    if lifecycle.world().round > 1:
        return
    state.commit()
    store = hvd.Store(keys="round")
    mine = ends()
    assert len(mine) == 2
    tensor = torch.ones(5)
    before = [acknowledged(end) for end in mine]
    if hvd.rank() != 0:
        work = dist.all_reduce(tensor, async_op=True)
        # Both neighbours know what this rank is ready for.
        pairs = list(zip(mine, before, strict=True))
        until(lambda: all(acknowledged(end) > was for end, was in pairs))
        ports = " ".join(str(end.getsockname()[1]) for end in mine)
        store.set(f"called {hvd.rank()}", f"{os.getpid()} {ports}")
        if hvd.rank() == victim:
            os.kill(os.getpid(), signal.SIGSTOP)
        del mine, pairs
        work.wait()
        raise AssertionError("the victim took part")
    store.get(f"called {3 - victim}")
    pid, *ports = (int(word) for word in store.get(f"called {victim}").split())
    until(lambda: stopped(pid))
    (broken,) = (end for end in mine if end.getpeername()[1] in ports)
    broken.shutdown(socket.SHUT_WR)
    # gloo's are the only ones again.
    del mine, broken
    work = dist.all_reduce(tensor, async_op=True)
    gloo_shutdown.wait_for_threads()
    os.kill(pid, signal.SIGKILL)
    work.wait()
    raise AssertionError("the victim took part")


train(state)
print(f"done rank {hvd.rank()} of {hvd.size()}", flush=True)
