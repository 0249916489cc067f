"""A state whose tensors are large enough that their pages are used again: sharded_large.py STEPS DEVICE [EVENT...].

build() makes the model on DEVICE: `meta` or `cpu`. Each round and each step prints a digest of the whole state. Steps of the first
round wait until the memory for the loss of a worker is there. An event is
WHEN:RANK@AT: that rank kills itself in the `forward` pass of a step of the first round, or, in a later round of that size,
when it has `written` commit 0 of the round and not sealed it.
"""

import contextlib
import hashlib
import os
import signal
import sys
import time

import torch
from torch.distributed.fsdp import fully_shard

import elasticrun.torch as er
from elasticrun import _native
from elasticrun.torch.elastic.sharded.writing import Writing

STEPS, DEVICE, EVENTS = int(sys.argv[1]), sys.argv[2], sys.argv[3:]

er.init()


def say(line):
    # A single write, since this process may be killed between two writes.
    os.write(1, f"{line}\n".encode())


def dies(when, at):
    is_first = _native.world().round == 1
    if f"{when}:{er.rank()}@{at}" in EVENTS and is_first == (when == "forward"):
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)


def resident():
    """Bytes of the memory of this process alone."""
    with open("/proc/self/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))


class PagePool:
    """Says what the pool has given."""

    #: Whether the pool was told what to keep.
    kept = False

    def __init__(self):
        self._pool = native_pool()

    def take(self, buffer):
        return self._pool.take(buffer)

    def provide(self, nbytes):
        before = resident()
        self._pool.provide(nbytes)
        # A build as short as this one would leave it no time.
        deadline = time.monotonic() + 60
        while resident() < before + 0.95 * nbytes:
            assert time.monotonic() < deadline, "no pages are provided"
            time.sleep(0.005)

    def keep(self, least, most):
        self._pool.keep(least, most)
        PagePool.kept = True

    def give(self, buffers):
        given = self._pool.give(buffers)
        say(f"round {_native.world().round}: gave {given} of {sum(nbytes for _, nbytes in buffers)}")
        return given


def memory_of_commits():
    """Bytes of the memory of this process for commits."""
    names = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    found = [name for name in names if os.path.islink(name) and "elasticrun-commit" in os.readlink(name)]
    return sum(512 * os.stat(name).st_blocks for name in found)


def provides():
    """Whether a thread still provides memory."""
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm") as comm:
            if comm.read().strip() == "elasticrun-ahead":
                return True
    return not PagePool.kept


def wait_provided():
    deadline = time.monotonic() + 60
    while provides():
        assert time.monotonic() < deadline, "no memory is provided"
        time.sleep(0.005)
    say(f"commits have {memory_of_commits()} in round 1")


def seal(writing):
    # The first commit of a later round comes first.
    writing.wait()
    say(f"commits have {memory_of_commits()} in round {_native.world().round}")
    dies("written", er.size())
    return sealed(writing)


native_pool, _native.PagePool = _native.PagePool, PagePool
sealed, Writing.seal = Writing.seal, seal


def build(mesh):
    torch.manual_seed(5)
    with torch.device(DEVICE):
        model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(2)))
    for layer in (*model, model):
        fully_shard(layer, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def digest(state):
    tensors = [*state.model.parameters()]
    tensors += [value for entry in state.optimizer.state.values() for value in entry.values() if value.dim()]
    hashed = hashlib.sha256()
    for tensor in tensors:
        hashed.update(tensor.full_tensor().detach().numpy().tobytes())
    return hashed.hexdigest()[:12]


state = er.elastic.ShardedState(build, step=0)


@er.elastic.run
def train(state):
    say(f"round of {er.size()} at {state.step}: {digest(state)}")
    while state.step < STEPS:
        if _native.world().round == 1 and state.step > 0:
            wait_provided()
            er.barrier()
        loss = state.model(torch.ones(1, 2048)).square().mean()
        dies("forward", state.step)
        loss.backward()
        state.optimizer.step()
        state.optimizer.zero_grad()
        state.step += 1
        found = digest(state)
        if er.rank() == 0:
            say(f"step {state.step}: {found}")
        state.commit()


train(state)
say("done")
