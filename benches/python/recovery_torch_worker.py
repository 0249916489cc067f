"""A worker of bench recovery_torch: trains a small network by DistributedDataParallel, and reports each commit.

Started as `recovery_torch_worker.py elasticrun|torchrun`. After each committed step it sends a line
`PID SIZE STEP NANOSECONDS` (of the monotonic clock) to the socket RECOVERY_SOCKET. Under elasticrun, a commit is
a commit of the state. Under torchrun, it is a checkpoint of rank 0 in RECOVERY_CHECKPOINT, which all ranks load after a
restart.
"""

import os
import socket
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
inputs, labels = torch.randn(16, 64), torch.randint(0, 10, (16,))
#: Time of a step without the collectives. It uses no processor, as on a GPU.
WAIT = 0.001

reports = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
reports.connect(os.environ["RECOVERY_SOCKET"])


def step(model: torch.nn.Module) -> None:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    time.sleep(WAIT)
    optimizer.step()


def report(size: int, count: int) -> None:
    reports.send(f"{os.getpid()} {size} {count} {time.monotonic_ns()}".encode())


def elasticrun() -> None:
    import elasticrun.torch as hvd

    hvd.init()
    hvd.init_process_group("elasticrun")
    state = hvd.elastic.TorchState(network, optimizer, step=0)

    @hvd.elastic.run
    def train(state):
        model = DistributedDataParallel(network)
        while True:
            step(model)
            state.step += 1
            state.commit()
            report(hvd.size(), state.step)

    train(state)


def torchrun() -> None:
    checkpoint = os.environ["RECOVERY_CHECKPOINT"]
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    count = 0
    if os.path.exists(checkpoint):
        saved = torch.load(checkpoint)
        network.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        count = saved["step"]
    model = DistributedDataParallel(network)
    while True:
        step(model)
        count += 1
        if rank == 0:
            saved = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": count}
            torch.save(saved, checkpoint + ".new")
            os.replace(checkpoint + ".new", checkpoint)
        # The step is committed once all ranks know that the checkpoint is written.
        dist.barrier()
        report(size, count)


{"elasticrun": elasticrun, "torchrun": torchrun}[sys.argv[1]]()
