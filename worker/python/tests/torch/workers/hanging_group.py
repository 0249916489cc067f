"""A carrier of tensors that hangs as NCCL does when a peer dies: only abort() ends its operations.

hanging_group.py: rank 1 of the first round dies while the others are in an operation of the group.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

import elasticrun.torch as hvd
from elasticrun import lifecycle
from elasticrun.torch import devices

groups = []


def waits(rank):
    """A file that exists once a rank is in its operation."""
    return Path(os.environ["TMPDIR"]) / f"waits-{rank}"


class Hanging(dist.ProcessGroup):
    """Completes nothing in the first round; an operation ends with an error once it is aborted."""

    def __init__(self, rank, size):
        super().__init__(rank, size)
        self.aborted = threading.Event()
        groups.append(self)

    def allreduce(self, tensors, opts):
        return HangingWork(self)

    def abort(self):
        self.when = time.monotonic()
        self.thread = threading.current_thread().name
        self.aborted.set()


class HangingWork(dist._Work):
    def __init__(self, group):
        super().__init__()
        self.group = group

    def wait(self, timeout=None):
        waits(hvd.rank()).touch()
        self.group.aborted.wait()
        raise RuntimeError("NCCL communicator was aborted")


hvd.init()
devices.register("meta", lambda store, rank, size, device: Hanging(rank, size))
state = hvd.elastic.TorchState(step=0)


@hvd.elastic.run
def train(state):
    if lifecycle.world().round > 1:
        return
    state.step = 1
    state.commit()
    hvd.barrier()
    if hvd.rank() == 1:
        while not (waits(0).exists() and waits(2).exists()):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)
    carrier = devices.transport(torch.device("meta"), hvd.allreduce.__globals__["host_transport"]())
    carrier.allreduce([torch.ones(3)], "sum").wait()
    raise AssertionError("an operation of a dead group was completed")


started = time.monotonic()
train(state)
(group,) = groups
assert group.aborted.is_set()
assert group.thread != threading.main_thread().name
print(f"ended after {group.when - started:.3f} s, step {state.step}", flush=True)
sys.stdout.flush()
