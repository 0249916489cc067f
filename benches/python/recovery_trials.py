"""Trials of the benchmarks recovery_torch and restart_torch: a worker of a job is killed, and the next step is awaited."""

import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

STEPS_BEFORE = 5
#: Seconds after which a trial is counted as not recovered.
TIMEOUT = 120.0


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

    def discard(self, seconds: float) -> None:
        """Reads and forgets the commits of so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.next(time.monotonic() + TIMEOUT)

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


def measure(
    name: str,
    command: list[str],
    ranks: int,
    trials: int,
    folder: str,
    alive: bool,
    settle: float = 0,
    pause: float = 0,
) -> dict:
    """Kills one worker per trial, each rank in turn. `alive`: see `Commits.recovered`.

    A world trains for `pause` seconds before the kill, the first one for `settle` seconds.
    """
    path = os.path.join(folder, f"{name.replace(' ', '-')}-{ranks}")
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
    job = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    seconds, lost = [], 0
    try:
        for trial in range(trials):
            try:
                pids = commits.until_all(ranks, STEPS_BEFORE, time.monotonic() + TIMEOUT)
                commits.discard(pause if trial else settle)
                victim = pids[trial % ranks]
                killed_at = time.monotonic_ns()
                os.kill(victim, signal.SIGKILL)
                others = set(pids) - {victim}
                deadline = time.monotonic() + TIMEOUT
                seconds.append(commits.recovered(killed_at, victim, others, deadline, alive))
            except TimeoutError:
                lost += 1
                print(f"{name}, {ranks} ranks, trial {trial}: not recovered", file=sys.stderr)
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
        "framework": name,
        "ranks": ranks,
        "trials": trials,
        "not_recovered": lost,
        "median_ms": round(statistics.median(ordered) * 1e3, 1) if ordered else None,
        "p90_ms": round(ordered[int(0.9 * (len(ordered) - 1))] * 1e3, 1) if ordered else None,
        "max_ms": round(ordered[-1] * 1e3, 1) if ordered else None,
    }
