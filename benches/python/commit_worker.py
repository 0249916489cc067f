"""One worker process of `benches/python/commit_torch.py`. Rank 0 prints JSON.

Commit: a TorchState of --mib MiB of float32 tensors, as a module of parameters. In alternation, a copy of the same bytes
to one of two targets. Both use one thread. Step: a model of --parameters float32. In alternation, its gradients are
synchronised in each of several ways.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist

import elasticrun.torch as hvd


class Layers(torch.nn.Module):
    """A model of `parameters` parameters in layers of `width` squared, whose synchronisation dominates a step."""

    def __init__(self, parameters: int, width: int) -> None:
        super().__init__()
        count = max(1, parameters // (width * width))
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def commit(mib: int, trials: int) -> dict[str, object]:
    model = Layers(mib << 18, 1024)
    state = hvd.elastic.TorchState(model=model, step=0)
    sources = [p.detach().numpy() for p in model.parameters()]
    targets = [[np.empty_like(source) for source in sources] for _ in range(2)]

    def copy(turn: int) -> None:
        for target, source in zip(targets[turn % 2], sources, strict=True):
            np.copyto(target, source)

    @hvd.elastic.run
    def measure(state: hvd.elastic.TorchState) -> dict[str, object]:
        commits, copies = [], []
        # The first two touch fresh memory.
        for turn in range(trials + 3):
            start = time.perf_counter()
            copy(turn)
            middle = time.perf_counter()
            state.step += 1
            state.commit()
            end = time.perf_counter()
            if turn >= 3:
                copies.append(middle - start)
                commits.append(end - middle)
        checks = 200_000
        start = time.perf_counter()
        for _ in range(checks):
            state.check_host_updates()
        check = (time.perf_counter() - start) / checks
        size = sum(source.nbytes for source in sources)
        ratios = [memcpy / ours for memcpy, ours in zip(copies, commits, strict=True)]
        return {
            "gib": size / 2**30,
            "commit_ms": 1e3 * statistics.median(commits),
            "memcpy_ms": 1e3 * statistics.median(copies),
            "memcpy_ratio": statistics.median(ratios),
            "check_ns": 1e9 * check,
        }

    return measure(state)


def steps(parameters: int, trials: int) -> dict[str, float]:
    """Median seconds of a step, by the way of synchronising."""
    width = 512
    x = torch.randn(8, width)

    def step_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
        def step() -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        return step

    def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=1e-3)

    hvd.init_process_group("elasticrun")
    gloo = dist.new_group(backend="gloo")
    ways: dict[str, Callable[[], None]] = {}
    model: torch.nn.Module = Layers(parameters, width)
    ways["alone"] = step_of(model, sgd(model))
    model = torch.nn.parallel.DistributedDataParallel(Layers(parameters, width), process_group=gloo)
    ways["ddp_gloo"] = step_of(model, sgd(model))
    model = torch.nn.parallel.DistributedDataParallel(Layers(parameters, width))
    ways["ddp_ours"] = step_of(model, sgd(model))
    model = Layers(parameters, width)
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    ways["optimizer"] = step_of(model, optimizer)

    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(trials + 3):
        for way, step in ways.items():
            hvd.barrier()
            start = time.perf_counter()
            step()
            hvd.barrier()
            if turn >= 3:
                times[way].append(time.perf_counter() - start)
    return {way: statistics.median(taken) for way, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["commit", "steps"])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--parameters", type=int, default=1 << 20)
    parser.add_argument("--trials", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    if args.what == "commit":
        result: dict[str, object] = commit(args.mib, args.trials)
    else:
        result = dict(steps(args.parameters, args.trials))
    if hvd.rank() == 0:
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
