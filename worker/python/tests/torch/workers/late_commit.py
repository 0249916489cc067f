"""A commit behind the end of a round in which there is a group of torch's own: it must not be kept."""

import os
import signal
import threading

import torch.distributed as dist

import elasticrun.torch as hvd
from elasticrun import _abort, lifecycle
from elasticrun.torch import abort

hvd.init()
hvd.init_process_group("gloo")
state = hvd.elastic.TorchState(step=0)
over = threading.Event()
abort.listen()
# Called after torch's groups have been.
_abort.watch(lambda round: over.set())


@hvd.elastic.run
def train(state):
    if lifecycle.world().round > 1:
        print("round 2 from", state.step, flush=True)
        return
    state.step = 1
    state.commit()
    dist.barrier()
    if hvd.rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    assert over.wait(60)
    state.step = 2
    state.commit()
    raise AssertionError("the commit of a round that is over was kept")


train(state)
