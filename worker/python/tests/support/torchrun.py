"""torchrun with the rendezvous back end elasticrun: real processes, each a node, on one machine."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

from elasticrun import _native
from support.jobs import TIMEOUT, Job, Starter
from support.ports import free_port

#: Sums over gloo and says who took part. Trains on until the file exists, if one is given.
TRAIN = """
    import os, sys, time
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    rank, size = dist.get_rank(), dist.get_world_size()
    print(f"TRAINS rank {rank} of {size}, sum {int(total)}", flush=True)
    while len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    dist.destroy_process_group()
    print(f"DONE {rank}", flush=True)
"""


class Nodes:
    """Starts torchrun processes with one endpoint. The first one serves it, unless it is in etcd.

    Attributes:
        endpoint: where the nodes meet.
        told: the file that ends training.
        script: what the workers run.
    """

    def __init__(self, start: Starter, folder: Path, endpoint: str | None = None) -> None:
        self._start = start
        self.port = free_port()
        self.endpoint = endpoint or f"127.0.0.1:{self.port}"
        self.told = folder / "told"
        self.script = start.script(TRAIN, "train.py")
        self.has_server = endpoint is not None

    def start(self, nodes: str, *conf: str, run_id: str = "job", waits: bool = False, restarts: int = 3) -> Job:
        """Starts a node. With ``waits``, it trains until :meth:`tell`."""
        options = ",".join(["last_call_timeout=1", "join_timeout=120", *conf])
        words = [str(self.told)] if waits else []
        job = self._start.command(
            *(sys.executable, "-m", "torch.distributed.run", "--rdzv-backend=elasticrun"),
            *(f"--rdzv-endpoint={self.endpoint}", f"--rdzv-id={run_id}", f"--rdzv-conf={options}"),
            "--local-addr=127.0.0.1",
            *(f"--nnodes={nodes}", "--nproc-per-node=1", f"--max-restarts={restarts}", str(self.script), *words),
        )
        if not self.has_server:
            self.has_server = True
            self._wait_for_server(job)
        return job

    def tell(self) -> None:
        """Ends training."""
        self.told.touch()

    def _wait_for_server(self, job: Job) -> None:
        until = time.monotonic() + TIMEOUT
        while time.monotonic() < until:
            assert job.process.poll() is None, job.text
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError("nobody serves the rendezvous")


def wait_for_nodes(nodes: Nodes, count: int) -> None:
    """Waits until so many torchrun processes are on a list of the run."""
    holder = _native.RendezvousHolder(nodes.endpoint, "elasticrun/job", TIMEOUT)
    until = time.monotonic() + TIMEOUT
    while time.monotonic() < until:
        state, _ = holder.read()
        if state is not None and state.count(b'"role"') >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"{count} nodes do not come")
