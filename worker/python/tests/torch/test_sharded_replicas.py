"""The state of a divided model survives the loss of whole hosts, since other hosts keep copies of their shards."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.jobs import Job, Starter, job

WORKER = Path(__file__).parent / "workers" / "sharded.py"
HOSTS = "localhost:2\n127.0.0.1:2\n127.0.0.2:2"
#: Lost hosts stay away, and nothing is gained by a wait for them.
OPTIONS = [
    "--blacklist",
    "forever",
    "--failure-domain",
    "slot",
    "--log-format",
    "json",
    "--replicate-interval",
    "100ms",
]


def command(folder: Path, replicas: int, *words: object, timeout: str = "600s") -> list[str]:
    """A job of six workers on three hosts, which keep shards for each other."""
    discovery = ["--host-discovery-script", str(folder / "discover.sh"), "--discovery-interval", "100ms"]
    flags = ["-np", "6", "--min-np", "1", "--elastic-timeout", timeout, *OPTIONS, *discovery]
    flags += ["--replicate-commits", str(replicas)]
    return [*flags, "--replica-group-size", "all", sys.executable, str(WORKER), "fsdp", *map(str, words)]


def children(pid: int) -> list[int]:
    """The processes that a process has started, in the order of their start."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True)
    return [int(child) for child in found.stdout.split()]


def agents(one: Job) -> list[int]:
    """The agents of the hosts."""
    return children(one.process.pid)


def lose(*hosts: int) -> None:
    """Ends the agents of hosts at once, and their workers with them, as the loss of the hosts would."""
    for agent in hosts:
        os.kill(agent, signal.SIGKILL)


def cuts(text: str) -> list[tuple[int, int]]:
    """The rounds and numbers of the commits whose copies were complete, in their order."""
    lines = [json.loads(line) for line in text.splitlines() if '"event":"cut_complete"' in line]
    return [(line["commit"]["round"], line["commit"]["count"]) for line in lines]


def await_cuts(one: Job, count: int) -> None:
    """Waits until so many further cuts are complete, the last one after some steps."""
    for _ in range(count):
        one.until('"event":"cut_complete"')


def check_base(text: str, size: int) -> int:
    """Checks that all workers of the round of this size have what torch has saved at the step of its base. Returns that step."""
    starts = re.findall(rf"round of {size}: rank \d+ at step (\d+)", text)
    assert len(set(starts)) == 1, text
    equal = re.findall(rf"rank \d+ of {size} equals checkpoint (\d+): 58 tensors", text)
    assert equal == [starts[0]] * size, text
    return int(starts[0])


def test_a_job_goes_on_from_memory_after_the_loss_of_a_host(start: Starter, tmp_path: Path) -> None:
    start.hosts(HOSTS)
    with job(*command(tmp_path, 1, "6,4", tmp_path / "checkpoints")) as one:
        await_cuts(one, 3)
        lose(agents(one)[1])
        text = one.succeed()
    step = check_base(text, 4)
    # The first commits of the round, one for each step, and the number of the last one whose copies were complete.
    before = text[: text.index("round of 4")]
    assert step >= max(count for number, count in cuts(before) if number == 1) > 0, text


@pytest.mark.full
def test_a_host_is_lost_while_others_have_just_lost_a_worker(start: Starter, tmp_path: Path) -> None:
    start.hosts(HOSTS)
    with job(*command(tmp_path, 1, "6,3", tmp_path / "checkpoints")) as one:
        await_cuts(one, 3)
        first, second, _ = agents(one)
        os.kill(children(first)[-1], signal.SIGKILL)
        lose(second)
        text = one.succeed()
    assert check_base(text, 3) > 0


@pytest.mark.full
def test_hosts_are_lost_one_after_the_other(start: Starter, tmp_path: Path) -> None:
    start.hosts(HOSTS)
    with job(*command(tmp_path, 1, "6,4,2", tmp_path / "checkpoints")) as one:
        await_cuts(one, 3)
        _, second, third = agents(one)
        lose(second)
        one.until("rank 0 of 4 equals checkpoint")
        await_cuts(one, 2)
        lose(third)
        text = one.succeed()
    assert check_base(text, 2) >= check_base(text, 4) > 0


@pytest.mark.full
def test_two_hosts_are_lost_at_once(start: Starter, tmp_path: Path) -> None:
    start.hosts(HOSTS)
    with job(*command(tmp_path, 2, "6,2", tmp_path / "checkpoints")) as one:
        await_cuts(one, 3)
        _, *others = agents(one)
        lose(*others)
        text = one.succeed()
    assert check_base(text, 2) > 0


@pytest.mark.full
def test_a_host_is_lost_after_another_driver_has_taken_over(start: Starter, tmp_path: Path) -> None:
    start.hosts(HOSTS)
    words = command(tmp_path, 1, "6,4", tmp_path / "checkpoints")
    with job("--supervise", "--journal", str(tmp_path / "journal"), *words) as one:
        await_cuts(one, 3)
        (driver,) = children(one.process.pid)
        second = children(driver)[1]
        os.kill(driver, signal.SIGKILL)
        one.until('"event":"driver_replaced"')
        await_cuts(one, 2)
        lose(second)
        text = one.succeed()
    assert check_base(text, 4) > 0


@pytest.mark.full
def test_a_host_that_stands_still_is_lost_as_well(start: Starter, tmp_path: Path) -> None:
    start.hosts(HOSTS)
    with job(*command(tmp_path, 1, "6,4", tmp_path / "checkpoints")) as one:
        await_cuts(one, 3)
        agent = agents(one)[1]
        stopped = [agent, *children(agent)]
        try:
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            text = one.succeed()
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert check_base(text, 4) > 0


def test_the_loss_of_more_hosts_than_are_provided_for_ends_the_job(start: Starter, tmp_path: Path) -> None:
    start.hosts(HOSTS)
    with job(*command(tmp_path, 1, 10_000, "none", timeout="3s")) as one:
        await_cuts(one, 2)
        _, *others = agents(one)
        lose(*others)
        text = one.fail(code=6)
    assert re.search(r"commit [\d.]+ is incomplete, \d of its 6 shards are lost", text), text
