"""Scripts with torch that know nothing of elasticrun: a failure restarts them as a group, as torchrun does."""

import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from support.jobs import Starter, job, run

SCRIPT = str(Path(__file__).parent / "workers" / "snapshots.py")
BEGIN = re.compile(r"BEGIN rank (\d) of (\d) from step (\d+) port (\d+) restarts (\d) pid (\d+)")


class Member(NamedTuple):
    """The line that a rank of a group prints at its start."""

    rank: int
    size: int
    step: int
    port: int
    restarts: int
    pid: int

    def lives(self) -> bool:
        """Whether its process is there; one that has ended and was not waited for has no arguments."""
        try:
            return SCRIPT.encode() in Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except OSError:
            return False


def members(output: str) -> list[Member]:
    return [Member(*map(int, found)) for found in BEGIN.findall(output)]


def groups(output: str, size: int) -> list[tuple[int, int]]:
    """First step and port of each group: all its ranks have the same ones."""
    found = []
    for restarts in range(1 + max(member.restarts for member in members(output))):
        group = sorted(member for member in members(output) if member.restarts == restarts)
        assert [(member.rank, member.size) for member in group] == [(rank, size) for rank in range(size)], output
        ((step, port),) = {(member.step, member.port) for member in group}
        found.append((step, port))
    return found


def sums(output: str, size: int) -> list[float]:
    """What the ranks have for parameters: all those of a group of ``size`` got to the end."""
    found = sorted(re.findall(rf"DONE rank (\d) of {size} step 12 sum (\S+)", output))
    assert [int(rank) for rank, _ in found] == list(range(size)), output
    return [float(total) for _, total in found]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> float:
    """What the 12 steps make of the parameters. Any number of ranks makes the same: all have the same inputs."""
    snapshot = str(tmp_path_factory.mktemp("undisturbed") / "snapshot")
    code, output = run("-np", "1", sys.executable, SCRIPT, snapshot, "12")
    assert code == 0, output
    return sums(output, 1)[0]


def test_a_killed_rank_restarts_the_group_which_goes_on_from_its_snapshot(tmp_path: Path, undisturbed: float) -> None:
    words = [sys.executable, SCRIPT, str(tmp_path / "snapshot"), "12", "5"]
    code, output = run("-np", "2", "--max-restarts", "1", *words)
    assert code == 0, output
    (_, port), (step, other) = groups(output, 2)
    assert step == 5 and port != other, output
    assert sums(output, 2) == pytest.approx([undisturbed] * 2, abs=1e-4), output


def test_a_second_failure_restarts_the_whole_group_as_the_first_did(tmp_path: Path, undisturbed: float) -> None:
    """If ranks restarted one by one, each would meet a dead peer, and no step would follow the second failure.

    The second victim holds the store of its group. There is exactly one restart for each failure.
    """
    words = [sys.executable, SCRIPT, str(tmp_path / "snapshot"), "12", "4", "8"]
    with job(
        "-np", "2", "--min-np", "1", "--max-restarts", "2", "--failure-domain", "slot",
        "--blacklist-cooldown-range", "0", "0", "--max-host-failures", "0", *words,
    ) as one:  # fmt: skip
        for restarts in (1, 2):
            one.until(f"restarts {restarts}")
            older = [member for member in members(one.text) if member.restarts < restarts]
            assert len(older) == 2 * restarts and not any(member.lives() for member in older), one.text
        output = one.succeed()
    steps, ports = zip(*groups(output, 2), strict=True)
    assert steps == (0, 4, 8) and len(set(ports)) == 3, output
    assert sums(output, 2) == pytest.approx([undisturbed] * 2, abs=1e-4), output


def test_a_script_that_only_imports_elasticrun_has_torchs_own_groups(start: Starter) -> None:
    """It need not call ``init()``: some import the package for what it mends in torch, or run without a job."""
    start.alone(
        """
        import torch
        import torch.distributed as dist
        import elasticrun.torch

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        ones = torch.ones(1)
        dist.all_reduce(ones)
        assert ones.item() == 1 and dist.get_backend() == "gloo"
        """
    )
