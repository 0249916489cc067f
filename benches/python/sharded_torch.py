"""Measures a state that is divided among workers: its commits, and the time from a SIGKILL to the next forward pass.

`benches/python.sh sharded_torch.py [--bytes N] [--workers 8] [--trials N] [--peer-trials N] [--frameworks torchrun,elasticrun]
[--torchft DIRECTORY]`. Prints tables. The last line is JSON.

Commits: one worker, and two at once, commit their shards, in alternation with copies of the same bytes by `Tensor.copy_`.

Recovery: FSDP2 divides a model over all workers. A trial: all ranks have committed a step in one world. One of them, by
turns, gets SIGKILL, at the start of a step. The time runs until the last rank of the next world is about to enter its first
forward pass, with the values of the last committed step. Under elasticrun, that is the world of the others. A new worker joins
them 15 s later, before the next trial. Under torchrun all workers restart, and load a checkpoint of
torch.distributed.checkpoint in memory (/dev/shm). Under torchft, which `pip install --target DIRECTORY torchft-nightly` has
installed, two groups of half of the workers hold the whole state each. The group of the killed worker restarts, and gets the
state from the other group; `others` is the time until that one has gone on. The time has the call of build() in it. It is also given apart: the longest
one of all ranks.

`refill` is elasticrun with one replica group of 4 workers and a spare, which takes the place and the shard of the killed worker: the
world after a kill has as many workers as the one before.

The bound is 150 ms, or 60 ms for `refill`, and the bytes that the workers have copied at half of the bandwidth of memcpy by one thread. It is for the
time without build().
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elasticrun import _binary

WORKER = [sys.executable, str(Path(__file__).parent / "sharded_torch_worker.py")]
TORCHFT = [sys.executable, str(Path(__file__).parent / "sharded_torchft.py")]
#: Committed steps before a kill, in the first world and in later ones. Two commits touch all memory for commits.
FIRST_STEPS, STEPS = 2, 1
#: Seconds after which a trial is counted as not recovered.
TIMEOUT = 300.0
#: Seconds until a killed worker is replaced, for a round without it and without the imports of its replacement.
COOLDOWN = 15
BASE_MS = {"elasticrun": 150.0, "refill": 60.0}
#: Workers of a replica group of `refill`.
GROUP = 4

#: Titles of columns, and what they have.
COLUMNS = [
    ("median", "whole"),
    ("p90", "p90"),
    ("no build()", "without build"),
    ("p90", "p90 without build"),
    ("bound", "bound"),
    ("build()", "build"),
    ("load", "fill"),
    ("seal", "seal"),
    ("cpu", "processors"),
    ("step", "step"),
    ("commit", "commit"),
]

Report = dict[str, Any]


class Reports:
    """What the workers report."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self._socket.bind(path)

    def until(self, job: subprocess.Popen[bytes], is_enough: Callable[[Report], bool]) -> None:
        """Raises TimeoutError, also when the job has ended."""
        deadline = time.monotonic() + TIMEOUT
        self._socket.settimeout(1)
        while True:
            try:
                report = json.loads(self._socket.recv(4096))
            except TimeoutError:
                if job.poll() is not None or time.monotonic() > deadline:
                    raise
                continue
            if is_enough(report):
                return


class Job:
    """A job whose workers are killed one after the other."""

    def __init__(self, framework: str, workers: int, size: int, folder: str, torchft: str | None = None) -> None:
        self.framework, self.workers = framework, workers
        self.log = Path(folder, f"{framework}.log")
        path = os.path.join(folder, framework)
        self._checkpoints = tempfile.mkdtemp(prefix="bench-sharded-", dir="/dev/shm")
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "SHARDED_BYTES": str(size),
            "SHARDED_SOCKET": path,
            "SHARDED_CHECKPOINTS": self._checkpoints,
            **({"SHARDED_GROUP": str(GROUP)} if framework == "refill" else {}),
            # With its default torchrun hands out addresses of dead peers, and mostly does not recover.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        if framework == "torchft":
            paths = [str(torchft), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
            environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        self._reports = Reports(path)
        #: Milliseconds of steps and commits between the trials.
        self.steps: list[float] = []
        self.commits: list[float] = []
        #: The last step that all have committed.
        self._step = 0
        #: Workers that have come to the loop of rounds, and those that were killed.
        self._ready: set[int] = set()
        self._killed: set[int] = set()
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                self._command(), env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def _command(self) -> list[str]:
        count = str(self.workers)
        if self.framework == "elasticrun":
            return [
                str(_binary.find()), "-np", count, "--min-np", "1", "--max-np", count, "--replica-group-size", "all",
                "--max-host-failures", "0", "--blacklist-cooldown-range", f"{COOLDOWN}s", f"{COOLDOWN}s", "--last-call", "0",
                *WORKER, "elasticrun",
            ]  # fmt: skip
        if self.framework == "refill":
            return [
                str(_binary.find()), "-H", f"localhost:{self.workers + 1}", "-np", count, "--min-np", count, "--max-np", count,
                "--spares", "1", "--replica-group-size", count, "--max-host-failures", "0",
                "--blacklist-cooldown-range", f"{COOLDOWN}s", f"{COOLDOWN}s", "--last-call", "0", *WORKER, "elasticrun",
            ]  # fmt: skip
        if self.framework == "torchft":
            return [*TORCHFT, "groups", count]
        run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count]
        return [*run, "--max-restarts", "100000", WORKER[1], "torchrun"]

    def trial(self, number: int) -> dict[str, float]:
        """Kills a worker. Returns milliseconds until all others have entered, and of the parts.

        Raises:
            TimeoutError: they have not.
        """
        pids = self._until_trained(STEPS if number else FIRST_STEPS)
        victim = pids[number % self.workers]
        self._killed.add(victim)
        killed = time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        refills = self.framework == "refill"
        goes_on = refills or self.framework == "elasticrun"
        others = set(pids) - {victim}
        entered: dict[int, Report] = {}
        #: Under torchft, when the other group has gone on.
        apart: dict[int, int] = {}
        count = self.workers // 2 if self.framework == "torchft" else self.workers
        #: The size of the next world.
        size_then = len(others) if self.framework == "elasticrun" else self.workers
        count = min(count, size_then)

        def is_enough(report: Report) -> bool:
            if report["kind"] == "entered" and report["ns"] > killed:
                pid, size = report["pid"], report["size"]
                is_next = pid != victim if refills else pid in others if goes_on else pid not in pids
                if is_next and size == size_then:
                    entered.setdefault(pid, report)
                elif pid in others and size == self.workers // 2:
                    apart.setdefault(pid, report["ns"])
            return len(entered) == count

        self._reports.until(self._process, is_enough)
        steps = {report["step"] for report in entered.values()}
        if self.framework != "torchft" and steps != {self._step}:
            sys.exit(f"{self.framework}: the next world has begun at the steps {steps}, and {self._step} was committed")
        last = max(entered.values(), key=lambda report: report["ns"])
        rounds = [report["round"] for report in entered.values()]
        times = {
            "whole": last["ns"] - killed,
            "build": max(one["build_ns"] for one in rounds),
            "until load": max(one["load"] for one in rounds) - killed,
            # Of all ranks together. It depends less on what else the machine does.
            "processors": sum(one["cpu_ns"] for one in rounds),
        }
        if self.framework == "torchft":
            times["others"] = max(apart.values(), default=killed) - killed
        if goes_on:
            times["until joined"] = max(one["joined"] for one in rounds) - killed
            times["seal"] = last["ns"] - max(one["seal"] for one in rounds)
        result = {name: value / 1e6 for name, value in times.items()}
        result["fill"] = max(one["fill_ms"] for one in rounds)
        result["copied_mb"] = sum(one.get("copied_mb", 0.0) for one in rounds)
        return result

    def _until_trained(self, steps: int) -> list[int]:
        """Waits until all have committed so many steps in one world. Returns their process ids."""
        counts: dict[int, int] = {}

        def is_enough(report: Report) -> bool:
            if report["kind"] == "ready":
                self._ready.add(report["pid"])
            elif report["size"] != self.workers:
                counts.clear()
            elif report["kind"] == "committed":
                pid = report["pid"]
                counts[pid] = counts.get(pid, 0) + 1
                self._step = report["step"]
                if counts[pid] > 1:
                    self.steps.append(report["step_ns"] / 1e6)
                    self.commits.append(report["commit_ns"] / 1e6)
            # A spare that has not entered a world yet takes part in the next one.
            has_spare = self.framework != "refill" or bool(self._ready - counts.keys() - self._killed)
            return has_spare and sum(count >= steps for count in counts.values()) == self.workers

        self._reports.until(self._process, is_enough)
        return sorted(pid for pid, count in counts.items() if count >= steps)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        shutil.rmtree(self._checkpoints, ignore_errors=True)


def measure(
    framework: str, workers: int, size: int, trials: int, folder: str, torchft: str | None = None
) -> dict[str, Any]:
    """Medians over the trials."""
    done: list[dict[str, float]] = []
    job = Job(framework, workers, size, folder, torchft)
    try:
        for trial in range(trials):
            try:
                done.append(job.trial(trial))
            except TimeoutError:
                print(f"{framework}, trial {trial}: not recovered\n{job.log.read_text()[-4000:]}", file=sys.stderr)
                break
    finally:
        job.end()
    result: dict[str, Any] = {"framework": framework, "workers": workers, "trials": trials}
    result["not_recovered"] = trials - len(done)
    if not done:
        return result
    without = sorted(one["whole"] - one["build"] for one in done)
    result |= {name: round(statistics.median(one[name] for one in done), 1) for name in done[0]}
    result["without build"] = round(statistics.median(without), 1)
    result["p90 without build"] = round(without[int(0.9 * (len(without) - 1) + 0.5)], 1)
    result["p90"] = round(sorted(one["whole"] for one in done)[int(0.9 * (len(done) - 1) + 0.5)], 1)
    result["step"] = round(statistics.median(job.steps), 1) if job.steps else None
    result["commit"] = round(statistics.median(job.commits), 1) if job.commits else None
    result["all"] = [{name: round(value, 1) for name, value in one.items()} for one in done]
    return result


def commits(workers: int, size: int, trials: int) -> dict[str, float]:
    """Times of commits of `workers` workers with so many bytes each."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SHARDED_BYTES": str(size * workers)}
    command = [str(_binary.find()), "-np", str(workers), "--no-prefix", "--replica-group-size", "all"]
    words = [*command, *WORKER, "commit", str(trials)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result | {"workers": workers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=float, default=2e9, help="bytes of the state in all")
    parser.add_argument("--workers", default="4,8", help="numbers of workers, with commas")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--peer-trials", type=int, default=3)
    parser.add_argument("--frameworks", default="torchrun,elasticrun,refill", help="in this order")
    parser.add_argument("--torchft", metavar="DIRECTORY", help="where torchft is installed")
    options = parser.parse_args()
    size = int(options.bytes)
    frameworks = [*(["torchft"] if options.torchft else []), *filter(None, options.frameworks.split(","))]

    results: dict[str, Any] = {"bytes": size, "load": os.getloadavg()[0]}
    print(f"{'commits':14} {'memcpy / copy':>14} {'/ commit':>10} {'copy':>10} {'commit':>10} {'memcpy':>10}")
    results["commits"] = [commits(workers, min(size, 10**9) // workers, 9) for workers in (1, 2)]
    for row in results["commits"]:
        ratios = f"{row['copy_ratio']:14.2f} {row['commit_ratio']:10.2f}"
        times = " ".join(f"{row[name]:7.1f} ms" for name in ("copy_ms", "commit_ms", "memcpy_ms"))
        print(f"{row['workers']} x {row['bytes'] / 1e6:.0f} MB".ljust(14), ratios, times, flush=True)
    first = results["commits"][0]
    bandwidth = first["bytes"] / first["memcpy_ms"] * 1e3
    print(f"memcpy by one thread: {bandwidth / 1e9:.1f} GB/s; target of memcpy / copy: 0.8\n")

    head = ["/ torchrun", "/ bound", *(title for title, _ in COLUMNS)]
    print(f"{'recovery':20}", " ".join(f"{word:>10}" for word in head))
    results["recovery"] = []
    with tempfile.TemporaryDirectory() as folder:
        for workers in (int(word) for word in options.workers.split(",")):
            rows: dict[str, dict[str, Any]] = {}
            for framework in frameworks:
                if framework == "refill" and workers != GROUP:
                    continue
                trials = options.trials if framework in BASE_MS else options.peer_trials
                subfolder = tempfile.mkdtemp(dir=folder)
                row = measure(framework, workers, size, trials, subfolder, options.torchft)
                rows[framework] = row
                if framework in BASE_MS and "whole" in row:
                    row["bound"] = round(BASE_MS[framework] + row["copied_mb"] * 1e6 / (0.5 * bandwidth) * 1e3, 1)
                    row["to bound"] = round(row["without build"] / row["bound"], 2)
                peer = rows.get("torchrun", {}).get("whole")
                if peer and "whole" in row:
                    row["to torchrun"] = round(row["whole"] / peer, 3)
                columns = [row.get(name) for name in ("to torchrun", "to bound")]
                words = ["-" if value is None else str(value) for value in columns]
                for _, name in COLUMNS:
                    value = row.get(name)
                    words.append("-" if value is None else f"{value:.0f} ms")
                title = f"{framework}, {workers}"
                print(f"{title:20}", " ".join(f"{word:>10}" for word in words), flush=True)
                if "others" in row:
                    print(f"    the other group has gone on after {row['others']:.0f} ms")
                results["recovery"].append(row)
            if not options.torchft:
                print("torchft: not measured; --torchft names a directory in which it is installed")
    print(json.dumps({"sharded_torch": results}))


main()
