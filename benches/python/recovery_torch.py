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
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from elasticrun import _binary

HOROVOD_SECONDS = {4: 30.2}
STEPS_BEFORE = 5
#: Seconds after which a trial is counted as not recovered.
TIMEOUT = 120.0

WORKER = [sys.executable, str(Path(__file__).parent / "recovery_torch_worker.py")]


class Commits:
    """The commits that the workers report."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.socket.bind(path)

    def next(self, deadline: float) -> tuple[int, int, int, int]:
        """Process, size of its world, step and time in nanoseconds of the next commit."""
        self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
        pid, size, step, when = self.socket.recv(200).decode().split()
        return int(pid), int(size), int(step), int(when)

    def until_all(self, ranks: int, steps: int, deadline: float) -> list[int]:
        """Waits until `ranks` processes have committed `steps` steps each in a world of that size."""
        counts: dict[int, int] = {}
        while sum(count >= steps for count in counts.values()) < ranks:
            pid, size, _, _ = self.next(deadline)
            if size != ranks:
                counts.clear()
            else:
                counts[pid] = counts.get(pid, 0) + 1
        return sorted(counts)

    def recovered(self, killed_at: int, victim: int, others: set[int], deadline: float, alive: bool) -> float:
        """Seconds until the last rank of the next world has committed.

        `alive`: the others go on as they are, in a world of their number; else all are new processes.
        """
        first: dict[int, int] = {}
        while len(first) < len(others) + (not alive):
            pid, size, _, when = self.next(deadline)
            goes_on = pid in others and size == len(others) if alive else pid not in others and pid != victim
            if when > killed_at and goes_on:
                first.setdefault(pid, when)
        return (max(first.values()) - killed_at) / 1e9


def command(framework: str, ranks: int, binary: str) -> list[str]:
    if framework == "elasticrun":
        return [
            binary, "-np", str(ranks), "--min-np", "2", "--max-np", str(ranks), "--max-host-failures", "0",
            "--blacklist-cooldown-range", "0", "0", "--last-call", "0", *WORKER, "elasticrun",
        ]  # fmt: skip
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*run, "--nproc-per-node", str(ranks), "--max-restarts", "100000", WORKER[1], "torchrun"]


def measure(framework: str, ranks: int, trials: int, binary: str, folder: str) -> dict:
    path = os.path.join(folder, f"{framework}-{ranks}")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "RECOVERY_SOCKET": path,
        "RECOVERY_CHECKPOINT": path + ".checkpoint",
        # With its default torchrun hands out addresses of dead peers, and mostly does not recover.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    commits = Commits(path)
    log = open(path + ".log", "w")
    job = subprocess.Popen(
        command(framework, ranks, binary), env=environment, stdout=log, stderr=log, start_new_session=True
    )
    seconds, lost = [], 0
    try:
        for trial in range(trials):
            try:
                pids = commits.until_all(ranks, STEPS_BEFORE, time.monotonic() + TIMEOUT)
                victim = pids[trial % ranks]
                killed_at = time.monotonic_ns()
                os.kill(victim, signal.SIGKILL)
                others = set(pids) - {victim}
                deadline = time.monotonic() + TIMEOUT
                alive = framework == "elasticrun"
                seconds.append(commits.recovered(killed_at, victim, others, deadline, alive))
            except TimeoutError:
                lost += 1
                print(f"{framework}, {ranks} ranks, trial {trial}: not recovered", file=sys.stderr)
                if job.poll() is not None:
                    lost += trials - trial - 1
                    break
    finally:
        if job.poll() is None:
            job.send_signal(signal.SIGTERM)
            try:
                job.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
        log.close()
    if lost:
        print(Path(path + ".log").read_text()[-4000:], file=sys.stderr)
    ordered = sorted(seconds)
    return {
        "framework": framework,
        "ranks": ranks,
        "trials": trials,
        "not_recovered": lost,
        "median_ms": round(statistics.median(ordered) * 1e3, 1) if ordered else None,
        "p90_ms": round(ordered[int(0.9 * (len(ordered) - 1))] * 1e3, 1) if ordered else None,
        "max_ms": round(ordered[-1] * 1e3, 1) if ordered else None,
    }


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
                result = measure(framework, ranks, trials, str(_binary.find()), folder)
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
