"""DistributedDataParallel as tutorials have it: gloo by env://, a snapshot after each step. It knows nothing of elasticrun.

Arguments: the path of the snapshot, the number of steps, and for each group the step behind which a rank of it kills
itself: rank 1 of the first group, rank 0 of the second.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

snapshot, steps, fatal = sys.argv[1], int(sys.argv[2]), [int(word) for word in sys.argv[3:]]
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0
if os.path.exists(snapshot):
    saved = torch.load(snapshot)
    step = saved["step"]
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
port = os.environ["MASTER_PORT"]
print(f"BEGIN rank {rank} of {size} from step {step} port {port} restarts {restarts} pid {os.getpid()}")

parallel = DistributedDataParallel(model)
while step < steps:
    inputs = torch.full((4, 8), float(step % 5 + 1))
    optimizer.zero_grad()
    (parallel(inputs) - 1.0).square().mean().backward()
    optimizer.step()
    step += 1
    if rank == 0:
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, snapshot + ".new")
        os.replace(snapshot + ".new", snapshot)
    dist.barrier()
    print(f"STEP {step} rank {rank} at {time.monotonic():.3f}")
    if fatal[restarts : restarts + 1] == [step] and rank == (restarts + 1) % 2:
        print(f"KILLED at {time.monotonic():.3f}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
print(f"DONE rank {rank} of {size} step {step} sum {sum(p.sum().item() for p in model.parameters()):.6f}")
dist.destroy_process_group()
# Now and then gloo's threads abort an interpreter that ends right behind an operation, with any launcher
# (elasticrun/torch/gloo_shutdown.py); that is not what is tested here.
sys.stdout.flush()
os._exit(0)
