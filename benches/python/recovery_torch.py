"""Measures the time from the SIGKILL of a torch worker to the next committed step of the others, and the same of torchrun.

`benches/python.sh recovery_torch.py [--trials N] [--peer-trials N] [--ranks 4,8] [--frameworks elasticrun,torchrun]`.
Prints a table. The last line is JSON. torchrun restarts all workers each time, so it gets fewer trials (10).

A trial: all ranks have committed five steps in one world. One of them, by turns, gets SIGKILL. The time runs until the
last rank of the next world has committed a step. Under elasticrun, the survivors continue at once and the replacement
joins them before the next trial. torchrun restarts all workers. Horovod's figure was measured before (0.28.1, gloo, 4
ranks, defaults); it is not run here.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from recovery_trials import measure

from elasticrun import _binary

HOROVOD_SECONDS = {4: 30.2}

WORKER = [sys.executable, str(Path(__file__).parent / "recovery_torch_worker.py")]


def command(framework: str, ranks: int, binary: str) -> list[str]:
    if framework == "elasticrun":
        return [
            binary, "-np", str(ranks), "--min-np", "2", "--max-np", str(ranks), "--max-host-failures", "0",
            "--blacklist-cooldown-range", "0", "0", "--last-call", "0", *WORKER, "elasticrun",
        ]  # fmt: skip
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*run, "--nproc-per-node", str(ranks), "--max-restarts", "100000", WORKER[1], "torchrun"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--peer-trials", type=int, default=10)
    parser.add_argument("--ranks", default="4,8")
    parser.add_argument("--frameworks", default="elasticrun,torchrun")
    options = parser.parse_args()
    results = []
    print(f"{'':12} {'ranks':>5} {'trials':>6} {'median':>12} {'p90':>12} {'max':>12} {'not recovered':>14}")
    with tempfile.TemporaryDirectory() as folder:
        for ranks in (int(word) for word in options.ranks.split(",")):
            for framework in options.frameworks.split(","):
                trials = options.trials if framework == "elasticrun" else options.peer_trials
                words = command(framework, ranks, str(_binary.find()))
                result = measure(framework, words, ranks, trials, folder, alive=framework == "elasticrun")
                results.append(result)
                times = [
                    "-" if result[key] is None else f"{result[key]:.1f} ms" for key in ("median_ms", "p90_ms", "max_ms")
                ]
                print(
                    f"{framework:12} {ranks:5} {trials:6} "
                    + " ".join(f"{word:>12}" for word in times)
                    + f" {result['not_recovered']:14}",
                    flush=True,
                )
            if ranks in HOROVOD_SECONDS:
                print(f"{'Horovod':12} {ranks:5} {'-':>6} {HOROVOD_SECONDS[ranks] * 1e3:9.1f} ms  (measured before)")
    horovod = {str(ranks): seconds * 1e3 for ranks, seconds in HOROVOD_SECONDS.items()}
    print(json.dumps({"recovery_torch": results, "horovod_0.28.1_ms": horovod}))


main()
