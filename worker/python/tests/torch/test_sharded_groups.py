"""Replica groups of a fixed size: survivors keep their shards, and a new worker gets the one that is missing."""

import re
import sys
from pathlib import Path

import pytest
from support.jobs import Starter, run

WORKER = Path(__file__).parent / "workers" / "sharded.py"
#: Group and shard by process.
Seats = dict[int, tuple[int, int]]


def seats(output: str, size: int) -> list[Seats]:
    """The seats of each round. The mesh has them as coordinates."""
    rounds: dict[int, Seats] = {}
    found = re.findall(r"pid (\d+) in round (\d+): group (\d+) shard (\d+) at [\[(](\d+), (\d+)[\])]", output)
    for pid, number, *places in found:
        group, shard, *coordinate = map(int, places)
        assert coordinate == [group, shard], output
        rounds.setdefault(int(number), {})[int(pid)] = (group, shard)
    for of_round in rounds.values():
        full = [(group, shard) for group in range(len(of_round) // size) for shard in range(size)]
        assert sorted(of_round.values()) == full, output
    return [rounds[number] for number in sorted(rounds)]


def command(size: int, *words: object) -> list[str]:
    kind = "hsdp" if size == 2 else "hsdp4"
    return ["--replica-group-size", str(size), sys.executable, str(WORKER), kind, *map(str, words)]


def check(output: str, workers: int) -> None:
    """Checks that all workers of the last round have begun with the bits of a checkpoint, and have ended alike."""
    equal = re.findall(rf"rank \d+ of {workers} equals checkpoint (\d+): 58 tensors", output)
    assert len(equal) == workers and len(set(equal)) == 1, output
    assert int(equal[0]) in (2, 3), output
    done = re.findall(rf"done rank \d+ of {workers} step (.*)", output)
    assert len(done) == workers and len(set(done)) == 1, output
    begins = re.findall(rf"round of {workers}: rank \d+ at step ([1-9]\d*) digest (\w+)", output)
    assert set(begins) <= set(re.findall(r">:step (\d+) digest (\w+)", output)), output


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize("dead", [0, pytest.param(1, marks=pytest.mark.full)])
def test_a_spare_takes_the_shard_of_a_dead_worker(size: int, dead: int, tmp_path: Path) -> None:
    workers = 2 * size
    spare = ["--spares", "1", "-H", f"localhost:{workers + 1}", "--blacklist", "forever"]
    # The spare may not wait yet, and one group is not enough. The sums of a step show that all have sealed the commit before
    # it: a worker that had not would be no holder of its shard, and its group would not be whole.
    counts = ["-np", str(workers), "--min-np", str(workers), "--max-np", str(workers)]
    code, output = run(*counts, *spare, *command(size, 6, tmp_path, f"commit:{dead}@3"))
    assert code == 0, output
    check(output, workers)
    before, after = seats(output, size)
    survivors = before.keys() & after.keys()
    assert len(survivors) == workers - 1, output
    assert all(before[pid] == after[pid] for pid in survivors), output
    (newcomer,) = after.keys() - before.keys()
    assert after[newcomer] == (0, dead), output


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.full)])
def test_a_whole_group_goes_on_without_a_spare(size: int, tmp_path: Path) -> None:
    workers = 2 * size
    counts = ["-np", str(workers), "--min-np", str(size), "--blacklist", "forever"]
    # The group of rank 0 has lost a worker.
    code, output = run(*counts, *command(size, 6, tmp_path, "commit:1@3"))
    assert code == 0, output
    check(output, size)
    before, after = seats(output, size)
    assert after.keys() == {pid for pid, seat in before.items() if seat[0] == 1}, output
    assert all(before[pid][1] == seat[1] for pid, seat in after.items()), output


def test_a_group_that_has_lost_a_worker_is_completed_again(tmp_path: Path) -> None:
    returns = ["-H", "localhost:4", "--blacklist-cooldown-range", "0", "0", "--max-host-failures", "0"]
    code, output = run(
        "-np", "4", "--min-np", "2", *returns, *command(2, "4,2,4", tmp_path, "commit:1@3")
    )  # fmt: skip
    assert code == 0, output
    first, second, third = seats(output, 2)
    parked = first.keys() & third.keys() - second.keys()
    assert len(second) == 2 and len(parked) == 1, output
    for pid, seat in first.items():
        assert pid not in third or third[pid][1] == seat[1], output


#: Pairs of tensor parallel workers, of which each has a copy of the model.
PAIRS = """
    import os, signal, torch
    import torch.distributed as dist
    import elasticrun.torch as er
    from elasticrun import _native
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    er.init()

    def build(mesh):
        torch.manual_seed(7)
        model = parallelize_module(torch.nn.Linear(5, 7), mesh["tensor"], ColwiseParallel())
        return model, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

    state = er.elastic.ShardedState(build, mesh=MESH, step=0)

    @er.elastic.run
    def train(state):
        world = _native.world()
        place = state.mesh.get_coordinate()
        print(f"pid {os.getpid()} in round {world.round}: group {world.group} shard {world.shard} at {place}", flush=True)
        copies = state.mesh["data"]
        while state.step < 5:
            rows = torch.full((2, 5), 1.0 + state.data_rank)
            state.optimizer.zero_grad()
            state.model(rows).sum().backward()
            for parameter in state.model.parameters():
                gradient = parameter.grad.to_local()
                dist.all_reduce(gradient, group=copies.get_group())
                gradient /= copies.size()
            if state.step == 3 and world.round == 1:
                # All have sealed the commit before.
                dist.all_reduce(torch.ones(1))
                if er.rank() == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            state.optimizer.step()
            state.step += 1
            state.commit()
        weight = state.model.weight.full_tensor()
        print(f"END {state.step} share {state.data_rank} of {state.data_size} sum {float(weight.sum()):.4f}", flush=True)

    train(state)
"""


def pairs(mesh: str) -> str:
    return PAIRS.replace("MESH", mesh)


def test_tensor_parallel_pairs_are_groups(start: Starter) -> None:
    flags = "-np 4 --min-np 4 --spares 1 --max-np 4 -H localhost:5 --blacklist forever --replica-group-size"
    text = start.job(f"{flags} 2", pairs('{"data": None, "tensor": 2}')).succeed()
    before, after = seats(text, 2)
    survivors = before.keys() & after.keys()
    assert len(survivors) == 3 and all(before[pid] == after[pid] for pid in survivors), text
    ends = re.findall(r"END 5 share (\d) of 2 sum (\S+)", text)
    assert sorted(share for share, _ in ends) == ["0", "0", "1", "1"], text
    assert len({total for _, total in ends}) == 1, text


@pytest.mark.parametrize(
    ("mesh", "says"),
    [
        ('{"tensor": 2, "data": None}', "the dimensions along which workers have copies of the model come first"),
        pytest.param(
            '{"data": None, "tensor": 1}',
            "1 workers hold one whole model in a mesh of data (any) x tensor 1; set --replica-group-size all",
            marks=pytest.mark.full,
        ),
    ],
)
def test_groups_that_are_not_those_of_the_mesh_are_refused(start: Starter, mesh: str, says: str) -> None:
    text = start.job("-np 4 --replica-group-size 2", pairs(mesh)).fail()
    assert "StateError" in text and says in text, text


def test_a_model_over_all_workers_needs_a_group_of_all() -> None:
    script = [sys.executable, str(WORKER), "tensor", "6", "none"]
    code, output = run("-np", "4", "--replica-group-size", "2", *script)
    assert code != 0, output
    says = "--replica-group-size 2: 4 workers hold one whole model in a mesh of data (any) x tensor 2; set --replica-group-size all"
    assert says in output, output
