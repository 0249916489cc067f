"""Compares commits of a torch state with memcpy, and the synchronisation of a step with DDP over gloo.

Usage: make bench-commit    (or: python benches/python/commit_torch.py [--quick])
The Python that runs it needs the wheel and torch, and `elasticrun` on its PATH. Prints a table. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

WORKER = Path(__file__).parent / "commit_worker.py"


def job(ranks: int, *arguments: str) -> dict[str, Any]:
    command = ["elasticrun", "-np", str(ranks), "--no-prefix", sys.executable, str(WORKER), *arguments]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, "PATH": path})
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the size, and few turns")
    quick = parser.parse_args().quick
    mib, trials = (256, 5) if quick else (1024, 9)

    commit = job(1, "commit", f"--mib={mib}", f"--trials={trials}")
    print(f"commit of {commit['gib']:.2f} GiB  {commit['commit_ms']:8.1f} ms")
    print(f"memcpy to two targets {commit['memcpy_ms']:8.1f} ms   ratio {commit['memcpy_ratio']:.2f} (target 0.8)")
    print(f"check_host_updates    {commit['check_ns']:8.0f} ns   (target 1000)")

    print()
    print("milliseconds of a step; over gloo: time beyond the step of one rank, ours / DDP over gloo")
    print(
        f"{'ranks':>5} {'parameters':>10} {'no sync':>9} {'DDP gloo':>9} {'DDP ours':>9} {'optimizer':>9} {'DDP':>6} {'opt.':>6}"
    )
    rows = []
    for ranks in (2, 4):
        for parameters in (1 << 20, 1 << 23):
            step = job(ranks, "steps", f"--parameters={parameters}", f"--trials={3 * trials}")
            over = {way: step[way] - step["alone"] for way in step}
            ratios = [over[way] / over["ddp_gloo"] for way in ("ddp_ours", "optimizer")]
            times = "".join(f" {1e3 * step[way]:9.2f}" for way in ("alone", "ddp_gloo", "ddp_ours", "optimizer"))
            print(f"{ranks:5} {parameters:10}{times} {ratios[0]:6.2f} {ratios[1]:6.2f}", flush=True)
            rows.append((ranks, parameters, ratios))
    last = {"bench": "commit", **{name: round(value, 3) for name, value in commit.items()}}
    for ranks, parameters, (ddp, optimizer) in rows:
        name = f"{ranks}_ranks_{parameters >> 20}m"
        last[f"step_overhead_ratio_ddp_{name}"] = round(ddp, 3)
        last[f"step_overhead_ratio_optimizer_{name}"] = round(optimizer, 3)
    print(json.dumps(last))


if __name__ == "__main__":
    main()
