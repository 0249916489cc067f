"""A job of torchft for bench sharded_torch: two groups of workers, each of which holds the whole state, divided by FSDP2.

Started as `sharded_torchft.py groups WORKERS`, which starts a lighthouse and both groups (torchrun), or as `sharded_torchft.py
worker`. Averages the gradients of both groups by the manager. A group whose worker is lost restarts, and gets the state
from the other one. Sends the reports of sharded_torch_worker, `entered` before each forward pass, whose `size` is the
number of workers of the groups that take part.
"""

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from sharded_torch_worker import Reports, backward, build
from torch.distributed.device_mesh import init_device_mesh

GROUPS = 2


def groups(workers: int) -> None:
    """Runs until a signal."""
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=1, join_timeout_ms=1000, quorum_tick_ms=50)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(workers // GROUPS)]
    jobs = []
    for group in range(GROUPS):
        environment = {**os.environ, "TORCHFT_LIGHTHOUSE": lighthouse.address(), "SHARDED_GROUP": str(group)}
        jobs.append(subprocess.Popen([*run, "--max-restarts", "100000", __file__, "worker"], env=environment))

    def end(*_: object) -> None:
        for job in jobs:
            job.terminate()

    signal.signal(signal.SIGTERM, end)
    for job in jobs:
        job.wait()
    lighthouse.shutdown()


def worker() -> None:
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torchft import Manager, ProcessGroupGloo

    reports = Reports()
    dist.init_process_group("gloo")
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("shard",))
    begun = time.monotonic_ns()
    model, optimizer = build(mesh)
    built = time.monotonic_ns()
    model.to_empty(device="cpu")
    torch.manual_seed(0)
    for layer in model.layers:
        layer.reset_parameters()
    # Makes the optimizer's state.
    get_state_dict(model, optimizer)
    moments = [value for entry in optimizer.state.values() for value in entry.values() if value.dim()]
    tensors = [tensor.to_local().detach() for tensor in (*model.parameters(), *moments)]
    steps = [value for entry in optimizer.state.values() for value in entry.values() if not value.dim()]

    def load(stored: list[torch.Tensor]) -> None:
        for tensor, value in zip([*tensors, *steps], stored, strict=True):
            tensor.copy_(value)

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=60)),
        load_state_dict=load,
        state_dict=lambda: [*tensors, *steps],
        min_replica_size=1,
        replica_id=f"group{os.environ['SHARDED_GROUP']}",
        # The state is there before the forward pass.
        use_async_quorum=False,
    )
    while True:
        manager.start_quorum()
        taking_part = size * manager.num_participants()
        times = {"build_ns": built - begun, "fill_ms": 0.0, "load": begun, "cpu_ns": time.process_time_ns()}
        reports.send("entered", size=taking_part, step=manager.current_step(), round=times)
        started = time.monotonic_ns()
        backward(model)
        works = [manager.allreduce(parameter.grad.to_local()) for parameter in model.parameters()]
        for work in works:
            work.wait()
        if manager.should_commit():
            optimizer.step()
            values = {"step_ns": time.monotonic_ns() - started, "commit_ns": 0}
            reports.send("committed", size=taking_part, step=manager.current_step(), **values)
        optimizer.zero_grad()


if __name__ == "__main__":
    groups(int(sys.argv[2])) if sys.argv[1] == "groups" else worker()
