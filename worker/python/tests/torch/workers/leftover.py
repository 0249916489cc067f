"""A message of rank 0 that rank 1 does not receive: leftover.py CASE.

CASE is end (the job ends with it), or size (rank 1 expects the next one of its tag, which is shorter).
"""

import sys

import torch
import torch.distributed as dist

import elasticrun.torch as hvd

hvd.init()
hvd.init_process_group("elasticrun")
received = torch.zeros(2)
if hvd.rank() == 0:
    left = dist.isend(torch.ones(3), 1, tag=5)
    dist.send(torch.ones(2), 1, tag=6)
else:
    dist.recv(received, 0, tag=6)
    assert received.tolist() == [1, 1]
if sys.argv[1] == "size":
    if hvd.rank() == 0:
        dist.send(torch.ones(2), 1, tag=5)
    else:
        print("expects 2", flush=True)
        dist.recv(received, 0, tag=5)
        print("received", received.tolist(), flush=True)
hvd.barrier()
print(f"done rank {hvd.rank()}", flush=True)
