"""Rank 2 dies while the others wait for it in a collective that a callback of a future has begun: callbacks.py CASE.

CASE is then (a callback of the script), hook (torch's own PowerSGD hook of DistributedDataParallel, which waits for
two collectives in callbacks of a third), or store (a callback of the script that waits in the round's store, and the error of
which is judged before torch's part of the package hears of the abort).
"""

import os
import signal
import sys
import threading

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import elasticrun.torch as hvd
from elasticrun import _abort, lifecycle
from elasticrun.torch import abort

case = sys.argv[1]
STEPS, FATAL = 8, 4

torch.manual_seed(0)
hvd.init()
if case == "store":
    judged, aborted = threading.Event(), abort.aborted
    # Called before torch's part is.
    _abort.watch(lambda round: judged.wait(60))

    def asked(round, patience=0.0):
        judged.set()
        return aborted(round, patience)

    abort.aborted = asked
hvd.init_process_group("elasticrun")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
state = hvd.elastic.TorchState(model, optimizer, step=0, total=0)
all_reduce = dist.all_reduce
#: Collectives of the step so far.
begun = []


def fatal():
    return lifecycle.world().round == 1 and state.step == FATAL


def observed(tensor, *args, **kwargs):
    """``all_reduce``. The second one of a step is called in the callback of the first."""
    begun.append(tensor)
    if not fatal():
        return all_reduce(tensor, *args, **kwargs)
    store = hvd.Store(keys="round")
    if hvd.rank() == 2:
        # A callback that is added to a completed future runs immediately, in the thread that adds it.
        store.wait([f"rank {rank} {'added' if len(begun) == 1 else 'waits'}" for rank in (0, 1)])
        if len(begun) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    work = all_reduce(tensor, *args, **kwargs)
    if hvd.rank() != 2 and len(begun) == 2:
        assert threading.current_thread() is not threading.main_thread()
        store.set(f"rank {hvd.rank()} waits", "")
        if case == "store":
            store.wait(["a key that no rank sets"])
    return work


def added(future):
    """``future``, whose callbacks are all there."""
    if fatal():
        hvd.Store(keys="round").set(f"rank {hvd.rank()} added", "")
    return future


dist.all_reduce = observed


def then(size):
    """The square of the number of ranks, by a sum of a sum."""

    def again(future):
        total = future.value()[0].clone()
        dist.all_reduce(total, async_op=True).wait()
        return total

    work = dist.all_reduce(torch.ones(1), async_op=True)
    return int(added(work.get_future().then(again)).wait().item())


def hook(compression, bucket):
    return added(powerSGD_hook.powerSGD_hook(compression, bucket))


def step_of(parallel):
    optimizer.zero_grad()
    inputs = torch.linspace(-1, 1, 8).outer(torch.linspace(0, state.step + 1, 8))
    parallel(inputs).square().mean().backward()
    optimizer.step()


@hvd.elastic.run
def train(state):
    size = hvd.size()
    print(f"round {lifecycle.world().round} from step {state.step}", flush=True)
    if case == "hook":
        parallel = DistributedDataParallel(model)
        compression = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=1
        )
        parallel.register_comm_hook(compression, hook)
    while state.step < STEPS:
        begun.clear()
        if case == "hook":
            step_of(parallel)
        else:
            assert then(size) == size * size
        state.total += size
        state.step += 1
        state.commit()


train(state)
assert len(begun) == {"then": 2, "store": 2, "hook": 3}[case]
parameters = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
gathered = hvd.allgather(parameters.unsqueeze(0))
assert torch.isfinite(parameters).all() and all(torch.equal(one, parameters) for one in gathered)
print(f"done rank {hvd.rank()} of {hvd.size()} step {state.step} total {state.total}", flush=True)
