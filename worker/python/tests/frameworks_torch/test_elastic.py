"""Lightning, the Trainer of Transformers and Accelerate in real jobs, in process, through failures and growth."""

from __future__ import annotations

import functools
import math
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from support.jobs import Starter, job

pytest.importorskip("lightning", reason="Lightning is not installed: run `make test-frameworks`")

WORKERS = Path(__file__).parent / "workers"
SCRIPTS = {
    "accelerate": "accelerate_loop.py",
    "lightning": "lightning_fit.py",
    "transformers": "transformers_trainer.py",
    # The training data are a data set of elasticrun.data.
    "accelerate rows": "accelerate_loop.py",
    "lightning rows": "lightning_fit.py",
    "transformers rows": "transformers_trainer.py",
}
#: Steps of an epoch of 96 samples, in batches of 4 on two workers.
EPOCH = 12
SAME_SIZE = [
    "-np",
    "2",
    "--min-np",
    "2",
    "-H",
    "localhost:2",
    "--blacklist-cooldown-range",
    "0",
    "1",
    "--max-host-failures",
    "0",
]
DONE = re.compile(r"done rank (\d) of (\d): step (\d+) epoch (\S+) sum (\S+)")


class Step(NamedTuple):
    """What one worker did in a step."""

    round: int
    rank: int
    size: int
    step: int
    epoch: float
    loss: float
    rate: float
    samples: tuple[int, ...]


class Training:
    """What the workers of a job did, and where they have ended."""

    def __init__(self, folder: Path, output: str) -> None:
        self.output = output
        self.done = sorted(DONE.findall(output))
        steps: dict[int, list[Step]] = {}
        for file in folder.glob("steps.*"):
            for line in file.read_text().splitlines():
                words = line.split()
                whole, parts, samples = map(int, words[:4]), map(float, words[4:7]), tuple(map(int, words[7:]))
                step = Step(*whole, *parts, samples)
                steps.setdefault(step.step, []).append(step)
        #: The members of each step, as it was committed: a step that was lost is done again in a later round.
        self.steps = {step: sorted(self._last(members)) for step, members in sorted(steps.items())}

    def curve(self) -> list[tuple[int, float, float, float]]:
        """Step, epoch, loss and learning rate by rank 0."""
        return [members[0][3:7] for members in self.steps.values()]

    def samples(self, epoch: int) -> Counter[int]:
        """How often each sample was used in an epoch."""
        members = [one for members in self.steps.values() for one in members if self.epoch(one) == epoch]
        return Counter(sample for one in members for sample in one.samples)

    @staticmethod
    def _last(members: list[Step]) -> list[Step]:
        last = max(one.round for one in members)
        return [one for one in members if one.round == last]

    @staticmethod
    def epoch(step: Step) -> int:
        """The epoch that a step belongs to: epochs count its end, so 1.0 ends epoch 0."""
        return math.ceil(step.epoch) - 1


def train(framework: str, flags: list[str], epochs: int, *kills: str, **env: str) -> Training:
    """Runs a job to its end."""
    with tempfile.TemporaryDirectory(prefix="elasticrun-test-") as folder:
        command = [sys.executable, str(WORKERS / SCRIPTS[framework]), folder, str(epochs), *kills]
        env |= rows_of(framework, Path(folder), **env)
        with job(*flags, *command, **env) as one:
            # Each of them takes a while, since a worker starts for it.
            for kill in range(len(kills)):
                one.until(f"round {kill + 2} started")
            assert one.end() == 0, one.text
            left = {kill for kill in kills if not (Path(folder) / f"killed.{kill}").exists()}
            assert not left, f"not killed: {left}\n{one.text}"
            return Training(Path(folder), one.text)


def rows_of(framework: str, folder: Path, **env: str) -> dict[str, str]:
    """Variables by which the workers read rows, which are written to the folder, if they do."""
    if not framework.endswith(" rows"):
        return {}
    path = folder / "rows.parquet"
    write = "import sys, recording; recording.write_rows(sys.argv[1])"
    subprocess.run([sys.executable, "-c", write, path], cwd=WORKERS, env={**os.environ, **env}, check=True)
    return {"ROWS": str(path)}


def kill_in(step: int, size: int) -> str:
    """A kill of a random rank at a random place of the step."""
    return f"{step}:{random.randrange(size)}:{random.choice(['gradients', 'end'])}"


@functools.cache
def undisturbed(framework: str, epochs: int) -> Training:
    return train(framework, SAME_SIZE, epochs)


@pytest.fixture(params=sorted(SCRIPTS))
def framework(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_killed_worker_is_replaced_and_the_curve_is_that_of_an_undisturbed_job(framework: str) -> None:
    """Killed in a random batch of a later epoch. Losses, rates and parameters have the same bits."""
    kill = kill_in(random.randrange(EPOCH, 3 * EPOCH), 2)
    whole, killed = undisturbed(framework, 3), train(framework, SAME_SIZE, 3, kill)
    assert "succeeded through 1 failure" in killed.output
    assert_same(whole, killed, 3, kill)


@pytest.mark.kills
def test_twenty_kills_leave_no_trace(framework: str) -> None:
    """Each in a random batch of a later epoch, of a random rank."""
    epochs = 6
    kills = [kill_in(step, 2) for step in sorted(random.sample(range(EPOCH, epochs * EPOCH), 20))]
    killed = train(framework, SAME_SIZE, epochs, *kills)
    assert "succeeded through 20 failures" in killed.output
    assert_same(undisturbed(framework, epochs), killed, epochs, " ".join(kills))


def assert_same(whole: Training, killed: Training, epochs: int, kills: str) -> None:
    why = f"killed at {kills}\n{killed.output}"
    assert len(whole.steps) == epochs * EPOCH and killed.curve() == whole.curve(), why
    assert killed.done == whole.done and len(killed.done) == 2, why
    for step, members in killed.steps.items():
        assert [one.samples for one in members] == [one.samples for one in whole.steps[step]], why
    for epoch in range(epochs):
        assert whole.samples(epoch) == Counter(range(96)), whole.output


@pytest.mark.parametrize("batches", [1, 2])
def test_fewer_workers_go_on_with_the_samples_that_remain(framework: str, batches: int) -> None:
    """99 samples: the last step of an epoch is shorter. No sample is lost, and none is used twice.

    A step may have two batches, whose gradients are accumulated. Then each third step is committed, and others are repeated.
    """
    kill = kill_in(random.randrange(10 // batches, 26 // batches), 3)
    flags = ["-np", "3", "--min-np", "2", "-H", "localhost:3", "--blacklist", "forever"]
    killed = train(
        framework, flags, 4, kill, SAMPLES="99", ACCUMULATE=str(batches), STEPS_PER_COMMIT=str(2 * batches - 1)
    )
    assert {members[0].size for members in killed.steps.values()} == {2, 3}, killed.output
    for epoch in range(4):
        assert killed.samples(epoch) == Counter(range(99)), f"killed at {kill}\n{killed.output}"
    assert [size for _, size, *_ in killed.done] == ["2", "2"], killed.output
    assert list(killed.steps) == list(range(1, len(killed.steps) + 1))
    assert len({total for *_, total in killed.done}) == 1


def test_a_host_that_comes_is_used_in_the_middle_of_an_epoch(framework: str, start: Starter, tmp_path: Path) -> None:
    change = start.hosts("localhost:1\n")
    flags = f"--min-np 1 --host-discovery-script {start.discovery} --discovery-interval 100ms"
    one = start.train(flags, WORKERS / SCRIPTS[framework], str(tmp_path), "0", **rows_of(framework, tmp_path))
    one.until("round 1 started with 1 worker")
    change("localhost:1\n127.0.0.1:1\n")
    one.until("round 2 started with 2 workers")
    training = Training(tmp_path, one.succeed())
    assert [size for _, size, *_ in training.done] == ["2", "2"], training.output
    last = max(Training.epoch(members[0]) for members in training.steps.values())
    for epoch in range(last + 1):
        assert training.samples(epoch) == Counter(range(96)), f"epoch {epoch} of {last}\n{training.output}"
    sizes = [members[0].size for members in training.steps.values()]
    assert sizes == sorted(sizes) and set(sizes) == {1, 2}
