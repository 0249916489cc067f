"""FSDP2 through a failure: nothing of the aborted round remains, and the meshes of the next round have its groups."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from support.jobs import run

SCRIPT = str(Path(__file__).parent / "workers" / "fsdp_rounds.py")
LINE = re.compile(
    r"round (\d+): rank (\d) of (\d) from step \d+: alive (\d+) of (\d+), tensors (\d+) then (\d+), released (\w+), mesh (\w+)"
)
MISSED = re.compile(r"round (\d+): rank (\d) of \d from step \d+: missed (\d+)")

#: The job goes on without the failed worker.
SHRINKS = "-np 4 --min-np 3 --blacklist forever --reset-limit 2"
#: A new worker takes the place of the failed one before the job goes on.
REFILLS = "-np 4 --min-np 4 -H localhost:4 --max-restarts 1 --blacklist-cooldown-range 0 1 --reset-limit 2"
#: The job goes on with three workers, and with four once the new one is ready.
RETURNS = "-np 4 --min-np 3 -H localhost:4 --max-restarts 1 --blacklist-cooldown-range 0 1 --reset-limit 3"


class Member(NamedTuple):
    """What a worker says at the beginning of a round."""

    round: int
    rank: int
    size: int
    alive: int
    earlier: int
    before: int
    after: int
    released: bool
    mesh: str


class Job:
    """A job of ``fsdp_rounds.py`` that succeeded, whose workers have compared all parameters after each step."""

    def __init__(self, flags: str, meshes: str, shape: str, victim: int, size: int) -> None:
        code, self.output = run(*flags.split(), sys.executable, SCRIPT, meshes, shape, str(victim), str(size))
        assert code == 0, self.output
        assert len(re.findall(rf"done rank \d of {size}", self.output)) == size, self.output
        self.members = sorted(
            Member(*map(int, found[:7]), released=found[7] == "True", mesh=found[8])
            for found in LINE.findall(self.output)
        )
        self.missed = {(int(round), int(rank)): int(count) for round, rank, count in MISSED.findall(self.output)}

    def survivors(self) -> list[Member]:
        """The members of the second round that were in the first one. They have nothing left of it."""
        found = [member for member in self.members if member.round == 2 and member.earlier]
        assert len(found) == 3, self.output
        for member in found:
            assert member.alive == 0, self.output
            assert member.released and member.before > 0 and member.after == 0, self.output
        return found


@pytest.mark.parametrize("meshes", ["own", "kept"])
def test_an_aborted_round_leaves_no_model_and_no_group(meshes: str) -> None:
    job = Job(SHRINKS, meshes, "flat", 1, 3)
    assert {member.size for member in job.survivors()} == {3}


@pytest.mark.parametrize("victim", [1, pytest.param(3, marks=pytest.mark.full)])
def test_a_mesh_of_the_program_gets_no_group_of_an_earlier_round(victim: int) -> None:
    """The ranks behind rank 1 move up, and those before rank 3 stay: both times an equal mesh was in DTensor's cache."""
    job = Job(REFILLS, "own", "hybrid", victim, 4)
    assert all(job.missed[2, member.rank] > 0 for member in job.survivors()), job.output


def test_a_kept_mesh_has_the_groups_of_the_round_and_the_cache_of_the_last_one() -> None:
    job = Job(REFILLS, "kept", "hybrid", 3, 4)
    for member in job.survivors():
        assert member.mesh == "same", job.output
        assert job.missed[2, member.rank] == 0, job.output


def test_a_mesh_is_new_where_the_coordinate_of_the_process_is_another_one() -> None:
    job = Job(REFILLS, "kept", "hybrid", 1, 4)
    assert [(member.rank, member.mesh) for member in job.survivors()] == [(0, "same"), (1, "new"), (2, "new")], (
        job.output
    )
    assert [job.missed[2, rank] > 0 for rank in range(3)] == [False, True, True], job.output


@pytest.mark.parametrize("shape", ["flat", pytest.param("hybrid", marks=pytest.mark.full)])
def test_a_mesh_is_used_again_when_the_job_has_its_size_again(shape: str) -> None:
    job = Job(RETURNS, "kept", shape, 3, 4)
    job.survivors()
    last = [member for member in job.members if member.size == 4 and member.round > 1 and member.earlier]
    assert [(member.mesh, job.missed[member.round, member.rank]) for member in last] == [("same", 0)] * 3, job.output
    assert all(member.alive == 0 for member in last), job.output
