"""Measures commits of a model on a GPU: how long one takes, and how much one that is asynchronous delays training.

`sharded_gpu.py [--bytes N] [--steps N]`, in an environment with the wheel; `make test-gpu` runs it. One worker has all of the
model (FSDP2 on NCCL), with AdamW: parameters in float32, and two moments of each.

Commits: the time of a commit, beside copies of the same tensors to page-locked memory by torch, in alternation. The target is
0.8 of the bandwidth of the copies.

Asynchronous: the time of training with a commit after each step, beside training without, in alternation. The target is a delay
below 1 % of a step. A step takes longer than the copy of the state. Rank 0 prints a table, and JSON as the last line.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

LAYERS = 8
#: Commits that are not counted: the first ones touch and page-lock fresh memory.
WARM_UP = 4


def worker(size: int, trials: int, steps: int) -> None:
    import torch
    from torch.distributed.fsdp import fully_shard

    import elasticrun.torch as er

    width = round((size / 12 / LAYERS) ** 0.5 / 128) * 128
    torch.backends.cuda.matmul.allow_tf32 = True

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(LAYERS))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return x

    def build(mesh: Any) -> Any:
        with torch.device("meta"):
            model = Model()
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    er.init()
    state = er.elastic.ShardedState(build, device="cuda", step=0)

    def median_ms(times: list[float]) -> float:
        return 1e3 * statistics.median(times)

    @er.elastic.run
    def measure(state: Any) -> dict[str, float]:
        tokens = 4096

        def step() -> None:
            state.model(rows).square().mean().backward()
            state.optimizer.step()
            state.optimizer.zero_grad()
            state.step += 1

        def timed(call: Any) -> float:
            torch.cuda.synchronize()
            begun = time.perf_counter()
            call()
            torch.cuda.synchronize()
            return time.perf_counter() - begun

        rows = torch.randn(tokens, width, device="cuda")
        step()
        moments = [value for entry in state.optimizer.state.values() for value in entry.values() if value.dim()]
        sources = [tensor.to_local().detach() for tensor in (*state.model.parameters(), *moments)]
        nbytes = sum(source.nbytes for source in sources)
        targets = [[torch.empty(s.shape, dtype=s.dtype, pin_memory=True) for s in sources] for _ in range(2)]

        def copy(turn: int) -> None:
            for target, source in zip(targets[turn % 2], sources, strict=True):
                target.copy_(source, non_blocking=True)

        copies, commits = [], []
        for turn in range(trials + WARM_UP):
            copies.append(timed(lambda turn=turn: copy(turn)))
            commits.append(timed(state.commit))
        ratios = [copied / took for copied, took in zip(copies, commits, strict=True)][WARM_UP:]
        targets.clear()

        # Steps that take three times as long as the copy.
        one = min(timed(step) for _ in range(3))
        wanted = 3 * statistics.median(copies[WARM_UP:])
        rows = torch.randn(max(128, round(tokens * wanted / one / 128) * 128), width, device="cuda")
        step()

        def train(commit: Any) -> float:
            """Seconds of a step with a commit, by the clock of the stream of training."""
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            for _ in range(steps):
                step()
                commit()
            # One that is copied from here on delays nothing any more.
            end.record()
            torch.cuda.synchronize()
            return begin.elapsed_time(end) / 1e3 / steps

        def behind() -> None:
            state.commit(async_=True)

        train(behind)
        plain, waits, asynchronous = [], [], []
        for _ in range(trials):
            plain.append(train(lambda: None))
            asynchronous.append(train(behind))
            # Completes the last one.
            state.commit()
            waits.append(train(state.commit))
        delays = [took / without - 1 for took, without in zip(asynchronous, plain, strict=True)]
        return {
            "bytes": float(nbytes),
            "tensors": float(len(sources)),
            "copy_ms": median_ms(copies[WARM_UP:]),
            "first_commit_ms": 1e3 * commits[0],
            "commit_ms": median_ms(commits[WARM_UP:]),
            "ratio": statistics.median(ratios),
            "step_ms": median_ms(plain),
            "step_async_ms": median_ms(asynchronous),
            "step_commit_ms": median_ms(waits),
            "delay": statistics.median(delays),
            "delay_max": max(delays),
        }

    result = measure(state)
    if er.rank() == 0:
        print(json.dumps(result), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=float, default=4e9, help="bytes of the state")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="steps of a trial of asynchronous commits")
    options = parser.parse_args()
    from elasticrun import _binary

    words = [sys.executable, os.path.abspath(__file__), "worker", str(int(options.bytes))]
    command = [str(_binary.find()), "-np", "1", "--no-prefix", "--replica-group-size", "all"]
    done = subprocess.run(
        [*command, *words, str(options.trials), str(options.steps)], stdout=subprocess.PIPE, text=True, timeout=400
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout[-2000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    gigabytes = result["bytes"] / 1e9
    rows = [
        ("copy to page-locked memory", result["copy_ms"], f"{gigabytes / result['copy_ms'] * 1e3:.1f} GB/s"),
        ("commit", result["commit_ms"], f"{result['ratio']:.2f} of the copy's bandwidth; target 0.8"),
        ("first commit", result["first_commit_ms"], "touches and page-locks memory"),
        ("step", result["step_ms"], ""),
        ("step, commit", result["step_commit_ms"], ""),
        ("step, asynchronous commit", result["step_async_ms"], f"{100 * result['delay']:+.2f} %; target 1 %"),
    ]
    print(f"{gigabytes:.2f} GB in {result['tensors']:.0f} tensors on one GPU")
    for name, milliseconds, note in rows:
        print(f"{name:28} {milliseconds:9.2f} ms  {note}")
    print(json.dumps(result))


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(*map(int, sys.argv[2:5]))
    else:
        main()
