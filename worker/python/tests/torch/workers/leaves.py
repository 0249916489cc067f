"""Ends right behind operations of gloo, whose threads are not through with them: leaves.py, of 2 workers."""

import torch
import torch.distributed as dist

import elasticrun.torch as hvd

hvd.init()
hvd.init_process_group("elasticrun")
groups = [dist.new_group(backend="gloo") for _ in range(8)]
works = [dist.all_reduce(torch.ones(100), group=group, async_op=True) for group in groups for _ in range(2)]
for work in works:
    work.wait()
