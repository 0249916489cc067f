"""The examples for PyTorch: they learn, and a killed worker does not keep them from it."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from support.jobs import job, run

EXAMPLES = Path(__file__).parents[4] / "examples" / "python"


def accuracy(output: str) -> float:
    found = re.search(r"reads ([\d.]+)% of the test digits", output)
    assert found, output
    return float(found[1])


@pytest.mark.parametrize(
    "arguments",
    [
        ["pytorch_digits.py"],
        ["pytorch_digits.py", "--backend", "gloo"],
        ["pytorch_horovod_style.py"],
        ["pytorch_horovod_style.py", "--fp16-allreduce"],
        ["pytorch_horovod_style.py", "--use-adasum"],
    ],
    ids=" ".join,
)
def test_it_learns(arguments: list[str]) -> None:
    name, *rest = arguments
    code, output = run("-np", "2", sys.executable, str(EXAMPLES / name), *rest)
    assert code == 0, output
    assert accuracy(output) > 90, output


@pytest.mark.parametrize("name", ["pytorch_digits.py", "pytorch_horovod_style.py"])
def test_it_learns_all_the_same_when_a_worker_is_killed(name: str) -> None:
    with job(
        "-np", "3", "--min-np", "2", "--blacklist", "forever",
        sys.executable, str(EXAMPLES / name), "--epochs", "12",
    ) as one:  # fmt: skip
        one.until("epoch 2:")
        os.kill(victim(one.process.pid, name), signal.SIGKILL)
        text = one.succeed()
        assert "2 workers" in text
        assert accuracy(text) > 90, text


@pytest.mark.parametrize(
    "mesh", ["fsdp", pytest.param("hsdp", marks=pytest.mark.full), pytest.param("tensor", marks=pytest.mark.full)]
)
def test_a_divided_model_learns_all_the_same_when_a_worker_is_killed(mesh: str) -> None:
    multiple = "1" if mesh == "fsdp" else "2"
    name = "pytorch_sharded_text.py"
    with job(
        "-np", "4", "--min-np", "2", "--blacklist", "forever", "--replica-group-size", "all", "--size-multiple", multiple,
        sys.executable, str(EXAMPLES / name), "--steps", "120", "--mesh", mesh,
    ) as one:  # fmt: skip
        one.until("step 40:")
        os.kill(victim(one.process.pid, name, workers=4), signal.SIGKILL)
        text = one.succeed()
    losses = {int(step): float(loss) for step, loss in re.findall(r"step (\d+): loss ([\d.]+)", text)}
    assert f"with {3 if mesh == 'fsdp' else 2} workers" in text
    # It begins at 4.4, as a guess among all characters.
    assert losses[120] < 2.2 and losses[120] < losses[40], text


def victim(driver: int, name: str, workers: int = 3) -> int:
    """A process below the driver that runs the example. There are so many."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status = (entry / "stat").read_text()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        parents[int(entry.name)] = (int(status.rsplit(")", 1)[1].split()[1]), command)

    def below(pid: int) -> bool:
        while pid in parents:
            if pid == driver:
                return True
            pid = parents[pid][0]
        return False

    runs = [
        pid
        for pid, (_, command) in parents.items()
        if below(pid) and command.split(b"\0")[1:2] == [str(EXAMPLES / name).encode()]
    ]
    assert len(runs) == workers, runs
    return max(runs)
