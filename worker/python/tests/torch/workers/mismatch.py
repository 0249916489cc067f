"""Ranks that call different things: mismatch.py CASE. Prints the error of each rank."""

import sys

import torch

import elasticrun.torch as hvd
from elasticrun.errors import ElasticrunError

hvd.init()
hvd.barrier()
rank, size = hvd.rank(), hvd.size()


def model(width):
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, width))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layers.parameters(), lr=0.1), layers.named_parameters())
    layers(torch.ones(1, 4)).sum().backward()
    optimizer.step()


odd = rank == 1
CASES = {
    "shape": lambda: hvd.allreduce(torch.ones(4 if odd else 3), name="weight"),
    "same-count": lambda: hvd.allreduce(torch.ones((3, 2) if odd else (2, 3)), name="weight"),
    "dtype": lambda: hvd.allreduce(torch.ones(3, dtype=torch.float64 if odd else torch.float32), name="weight"),
    "name": lambda: hvd.allreduce(torch.ones(3), name="bias" if odd else "weight"),
    "op": lambda: hvd.allreduce(torch.ones(3), name="weight", op=hvd.Max if odd else hvd.Min),
    "call": lambda: (hvd.allgather if odd else hvd.allreduce)(torch.ones(3), name="weight"),
    "root": lambda: hvd.broadcast(torch.ones(3), 1 if odd else 0, name="weight"),
    "columns": lambda: hvd.allgather(torch.ones(2, 4 if odd else 3), name="weight"),
    "parameters": lambda: hvd.broadcast_parameters({"weight": torch.ones(4 if odd else 3)}, 0),
    "model": lambda: model(5 if odd else 4),
    "join": lambda: hvd.join() if odd else hvd.broadcast(torch.ones(3), 0, name="weight"),
    "join-max": lambda: hvd.join() if odd else hvd.allreduce(torch.ones(3), op=hvd.Max, name="weight"),
}
try:
    CASES[sys.argv[1]]()
except ElasticrunError as error:
    print(f"{type(error).__name__}: {error}", flush=True)
else:
    print("no error", flush=True)
