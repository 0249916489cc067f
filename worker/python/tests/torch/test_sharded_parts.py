"""States whose members hold different tensors (ZeRO-1, stages of a pipeline) go on at another number of workers."""

import re
import sys
from pathlib import Path

import pytest
from support.jobs import run

from elasticrun import _native
from elasticrun.errors import StateError
from elasticrun.torch.elastic.sharded.merging import MemberTensor, merge

WORKER = Path(__file__).parent / "workers" / "sharded_parts.py"
STEPS = 6


def train(kind: str, least: int, *events: str) -> str:
    """The output of a job of four workers, of which at least so many must be left."""
    multiple = ["--size-multiple", "2"] if kind == "pipeline" else []
    options = ["-np", "4", "--min-np", str(least), "--blacklist", "forever", "--replica-group-size", "all", *multiple]
    code, output = run(*options, sys.executable, str(WORKER), kind, str(STEPS), *events)
    assert code == 0, output
    return output


def losses(output: str, size: int) -> list[float]:
    """The losses of all steps, which all workers of the last round must have."""
    done = re.findall(r"done rank (\d+) of (\d+) rates \[.*\] losses \[(.*)\]", output)
    assert sorted(int(rank) for rank, *_ in done) == list(range(size)), output
    assert {tuple(rest) for _, *rest in done} == {(str(size), done[0][2])}, output
    found = [float(loss) for loss in done[0][2].split(", ")]
    assert len(found) == STEPS and found[-1] < found[0], output
    return found


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, list[float]]:
    """The losses of undisturbed jobs. Buckets change no result."""
    zero = losses(train("zero", 4), 4)
    return {"zero": zero, "zero-buckets": zero, "pipeline": losses(train("pipeline", 4), 4)}


@pytest.mark.parametrize(
    ("kind", "events", "size"),
    [
        ("zero", ["1@3"], 3),
        ("zero", ["0@2", "3@2"], 2),
        # No worker has any state of the optimizer.
        ("zero", ["2@0"], 3),
        ("zero-buckets", ["0@3"], 3),
        # One of the three survivors completes no pair.
        ("pipeline", ["1@3"], 2),
        ("pipeline", ["2@3"], 2),
        # The whole second stage is gone.
        ("pipeline", ["1@4", "3@4"], 2),
    ],
)
def test_survivors_go_on_with_the_parts_of_the_dead(
    kind: str, events: list[str], size: int, undisturbed: dict[str, list[float]]
) -> None:
    output = train(kind, size, *events)
    digests = dict(re.findall(r">:step (\d+) digest (\w+)", output.split(f"round of {size}")[0]))
    ((step, digest),) = re.findall(rf"round of {size} at step (\d+) digest (\w+)", output)
    assert step == events[0].partition("@")[2], output
    # Bit by bit what the state had in the round before.
    assert step == "0" or digest == digests[step], output
    held = re.findall(rf"rank \d+ of {size} holds the state of (\d+) parameters", output)
    # Four layers of three parameters, an embedding and a head.
    assert step == "0" or sum(map(int, held)) == 14, output
    assert losses(output, size) == pytest.approx(undisturbed[kind], abs=1e-3)


def plain(name: str, rank: int, *shape: int) -> MemberTensor:
    """A tensor that is no DTensor."""
    return name, "float32", 4, list(shape), ([1], [rank], [None])


def sharded(name: str, ranks: list[int], *shape: int) -> MemberTensor:
    """A tensor that is cut in its first dimension."""
    return name, "float32", 4, list(shape), ([len(ranks)], ranks, [(0, 1)])


def nbytes(described: list[list[MemberTensor]]) -> tuple[list[int], list[int]]:
    """The shard of each rank, and the bytes of each shard."""
    merged = merge(described)
    count = max(merged.shards) + 1
    layout = _native.Layout(count, merged.meshes, merged.tensors)
    return merged.shards, [layout.nbytes(shard) for shard in range(count)]


def test_owners_have_shards_of_their_own_and_replicas_have_one() -> None:
    owners = {0: "a", 2: "b"}
    described = [[plain("weight", rank, 5)] for rank in range(4)]
    for rank, name in owners.items():
        described[rank].append(plain(f"optim.{name}", rank, 3))
    assert nbytes(described) == ([0, 1, 2, 1], [32, 20, 32])


def test_replicas_of_a_stage_have_one_shard() -> None:
    mesh: tuple[list[int], list[int], list[tuple[int, int] | None]]
    described: list[list[MemberTensor]] = [[] for _ in range(8)]
    for stage in range(2):
        # Replicate 2 x shard 2.
        ranks = [stage, stage + 2, stage + 4, stage + 6]
        for rank in ranks:
            mesh = [2, 2], ranks, [None, (0, 1)]
            described[rank] = [(f"layers.{stage}", "float32", 4, [5, 3], mesh), plain("in_all", rank, 1)]
    assert nbytes(described) == ([0, 1, 2, 3, 0, 1, 2, 3], [40, 40, 28, 28])


def test_a_tensor_of_several_stages_may_come_from_any() -> None:
    tied = [[0, 2], [1, 3]]
    described = [[sharded("tied", tied[rank % 2], 7), plain(f"own.{rank % 2}", rank, 1)] for rank in range(4)]
    assert nbytes(described) == ([0, 1, 2, 3], [20, 20, 16, 16])
    assert merge(described).meshes[0] == ([2, 2], [0, 2, 1, 3])


@pytest.mark.parametrize(
    ("described", "message"),
    [
        (
            [[plain("weight", 0, 5)], [], [plain("weight", 2, 6)]],
            r"ranks 0 and 2 have different tensors of one name: weight \(float32, \[5\]\) and weight \(float32, \[6\]\)",
        ),
        (
            [[plain("weight", 0, 5)], [sharded("weight", [1, 2], 5)], [sharded("weight", [1, 2], 5)]],
            r"ranks 0 and 1 have different .* and weight \(float32, \[5\], divided \[\(0, 1\)\] among the ranks \[1, 2\]\)",
        ),
        (
            [[sharded("weight", [0, 1], 5)], []],
            r"weight is divided among the ranks \[0, 1\], and the ranks \[0\] have a part of it",
        ),
    ],
)
def test_descriptions_that_contradict_each_other_are_refused(described: list[list[MemberTensor]], message: str) -> None:
    with pytest.raises(StateError, match=message):
        merge(described)
