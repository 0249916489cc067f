"""Measures the restart of a script without the SDK after the SIGKILL of a worker, with standby interpreters and without.

`benches/python.sh restart_torch.py [--trials N] [--ranks N] [--settle SECONDS] [--pause SECONDS]`. Prints a table. The last line is
JSON.

The script trains by DistributedDataParallel on gloo, and continues from a checkpoint. A trial: the group has trained for
`--pause` seconds, the first one for `--settle` seconds. One rank, by turns, gets SIGKILL. The time runs until the last rank of the next group has finished a step.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from recovery_trials import measure

from elasticrun import _binary

SCRIPT = [str(Path(__file__).parent / "recovery_torch_worker.py"), "torchrun"]


def commands(ranks: int, binary: str) -> dict[str, list[str]]:
    restarts = ["--max-restarts", "100000"]
    elasticrun = [binary, "-np", str(ranks), *restarts]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return {
        "elasticrun --preload auto": [*elasticrun, "--preload", "auto", sys.executable, *SCRIPT],
        "elasticrun --preload none": [*elasticrun, sys.executable, *SCRIPT],
        "torchrun": [*torchrun, *restarts, *SCRIPT],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--settle", type=float, default=30)
    parser.add_argument("--pause", type=float, default=5)
    options = parser.parse_args()
    results = []
    print(f"{'':26} {'trials':>6} {'median':>12} {'p90':>12} {'max':>12} {'not recovered':>14}")
    with tempfile.TemporaryDirectory() as folder:
        for name, command in commands(options.ranks, str(_binary.find())).items():
            times = {"settle": options.settle, "pause": options.pause}
            result = measure(name, command, options.ranks, options.trials, folder, alive=False, **times)
            results.append(result)
            times = [result[key] for key in ("median_ms", "p90_ms", "max_ms")]
            words = " ".join(f"{'-' if time is None else f'{time:.1f} ms':>12}" for time in times)
            print(f"{name:26} {options.trials:6} {words} {result['not_recovered']:14}", flush=True)
    print(json.dumps({"restart_torch": results}))


main()
