"""A worker of bench sharded_torch: a model that FSDP2 divides among all workers, with AdamW.

Started as `sharded_torch_worker.py elasticrun|torchrun|commit`. SHARDED_BYTES is the number of bytes of the state in all:
parameters in float32 and two moments of each. SHARDED_GROUP is the number of workers of a replica group, if it is fixed. `elasticrun` and `torchrun` send datagrams of JSON to the socket
SHARDED_SOCKET: under elasticrun when the worker is ready for its first round (`kind` is `ready`), when a round has begun, just
before the first forward pass (`entered`), and after each committed step (`committed`). Under torchrun, a commit is a checkpoint of
torch.distributed.checkpoint in SHARDED_CHECKPOINTS, which all ranks load after a restart. `commit` measures commits, and rank 0 prints JSON.
"""

import json
import logging
import os
import shutil
import socket
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

BYTES = int(os.environ["SHARDED_BYTES"])
#: Few and large matrices, so that the time is that of bytes and not of Python.
LAYERS = 8
WIDTH = round((BYTES / 12 / LAYERS) ** 0.5 / 8) * 8
#: Commits of rounds of `commit` that are not counted: the first ones touch fresh memory.
WARM_UP = 3

torch.set_num_threads(1)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def build(mesh: DeviceMesh) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """The model without memory, and its optimizer."""
    with torch.device("meta"):
        model = Model()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)


def backward(model: torch.nn.Module) -> None:
    model(torch.ones(1, WIDTH)).square().mean().backward()


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    backward(model)
    optimizer.step()
    optimizer.zero_grad()


class Reports:
    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.connect(os.environ["SHARDED_SOCKET"])

    def send(self, kind: str, **values: object) -> None:
        report = {"kind": kind, "pid": os.getpid(), "ns": time.monotonic_ns(), **values}
        self._socket.send(json.dumps(report).encode())


def elasticrun() -> None:
    import elasticrun.torch as er

    #: Times of the parts of the start of a round, and what the state says that it has loaded.
    round_: dict[str, float] = {}

    class Loaded(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.msg.startswith("round %d: built"):
                _, _, round_["copied_mb"], _, round_["fill_ms"], _ = record.args

    class Timed(er.elastic.ShardedState):
        """Notes when the parts of the start of a round begin."""

        def _begin_round(self) -> None:
            round_["joined"] = time.monotonic_ns()
            round_["cpu_ns"] = -time.process_time_ns()
            super()._begin_round()

        def _load_shards(self) -> None:
            round_["load"] = time.monotonic_ns()
            super()._load_shards()

        def _seal_first(self) -> None:
            round_["seal"] = time.monotonic_ns()
            super()._seal_first()

    def timed_build(mesh: DeviceMesh) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        begun = time.monotonic_ns()
        built = build(mesh)
        round_["build_ns"] = time.monotonic_ns() - begun
        return built

    reports = Reports()
    logging.getLogger("elasticrun").addHandler(Loaded())
    logging.getLogger("elasticrun").setLevel(logging.INFO)
    er.init()
    group = os.environ.get("SHARDED_GROUP")
    state = Timed(timed_build, mesh={"replicate": None, "shard": int(group)} if group else ("shard",), step=0)

    @er.elastic.run
    def train(state: Timed) -> None:
        round_["cpu_ns"] += time.process_time_ns()
        reports.send("entered", size=er.size(), step=state.step, round=round_)
        while True:
            begun = time.monotonic_ns()
            step(state.model, state.optimizer)
            state.step += 1
            stepped = time.monotonic_ns()
            state.commit()
            now = time.monotonic_ns()
            reports.send("committed", size=er.size(), step=state.step, step_ns=stepped - begun, commit_ns=now - stepped)

    reports.send("ready")
    train(state)


def torchrun() -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    reports = Reports()
    checkpoints = Path(os.environ["SHARDED_CHECKPOINTS"])
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("shard",))
    begun = time.monotonic_ns()
    model, optimizer = build(mesh)
    built = time.monotonic_ns()
    model.to_empty(device="cpu")
    newest = checkpoints / "newest"
    count = 0
    if newest.exists():
        count = int(newest.read_text())
        stored, stored_optimizer = get_state_dict(model, optimizer)
        parts = {"model": stored, "optimizer": stored_optimizer}
        dcp.load(parts, checkpoint_id=checkpoints / str(count))
        set_state_dict(model, optimizer, model_state_dict=parts["model"], optim_state_dict=parts["optimizer"])
    else:
        for layer in model.layers:
            layer.reset_parameters()
    loaded = time.monotonic_ns()
    times = {
        "build_ns": built - begun,
        "fill_ms": (loaded - built) / 1e6,
        "load": begun,
        "cpu_ns": time.process_time_ns(),
    }
    reports.send("entered", size=size, step=count, round=times)
    while True:
        begun = time.monotonic_ns()
        step(model, optimizer)
        count += 1
        stepped = time.monotonic_ns()
        stored, stored_optimizer = get_state_dict(model, optimizer)
        dcp.save({"model": stored, "optimizer": stored_optimizer}, checkpoint_id=checkpoints / str(count))
        if rank == 0:
            newest.with_suffix(".new").write_text(str(count))
            newest.with_suffix(".new").replace(newest)
            shutil.rmtree(checkpoints / str(count - 1), ignore_errors=True)
        # The step is committed once all ranks know that the checkpoint is complete.
        dist.barrier()
        now = time.monotonic_ns()
        reports.send("committed", size=size, step=count, step_ns=stepped - begun, commit_ns=now - stepped)


def commit(trials: int) -> None:
    """Commits of a shard, in alternation with copies of the same bytes to one of two targets. All workers do so at once."""
    import elasticrun.torch as er

    class Timed(er.elastic.ShardedState):
        def _agree(self) -> None:
            begun = time.perf_counter()
            super()._agree()
            self.waited = time.perf_counter() - begun

    er.init()
    state = Timed(build, step=0)

    def local_tensors(state: Timed) -> list[torch.Tensor]:
        moments = [value for entry in state.optimizer.state.values() for value in entry.values() if value.dim()]
        return [tensor.to_local().detach() for tensor in (*state.model.parameters(), *moments)]

    @er.elastic.run
    def measure(state: Timed) -> dict[str, float]:
        step(state.model, state.optimizer)
        sources = local_tensors(state)
        targets = [[torch.empty_like(source) for source in sources] for _ in range(2)]
        times: list[tuple[float, float, float]] = []
        for turn in range(trials + WARM_UP):
            er.barrier()
            begun = time.perf_counter()
            for target, source in zip(targets[turn % 2], sources, strict=True):
                target.copy_(source)
            copied = time.perf_counter()
            er.barrier()
            before = time.perf_counter()
            state.step += 1
            state.commit()
            whole = time.perf_counter() - before
            times.append((copied - begun, whole - state.waited, whole))
        counted = times[WARM_UP:]
        return {
            "bytes": float(sum(source.nbytes for source in sources)),
            "memcpy_ms": 1e3 * statistics.median(memcpy for memcpy, _, _ in counted),
            "copy_ms": 1e3 * statistics.median(copy for _, copy, _ in counted),
            "commit_ms": 1e3 * statistics.median(whole for _, _, whole in counted),
            "copy_ratio": statistics.median(memcpy / copy for memcpy, copy, _ in counted),
            "commit_ratio": statistics.median(memcpy / whole for memcpy, _, whole in counted),
        }

    result = measure(state)
    if er.rank() == 0:
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "commit":
        commit(int(sys.argv[2]))
    else:
        {"elasticrun": elasticrun, "torchrun": torchrun}[sys.argv[1]]()
