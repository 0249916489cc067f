"""States whose members hold different tensors (ZeRO-1, stages of a pipeline) go on at another number of workers."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.jobs import run

from elasticrun import _native
from elasticrun.errors import StateError
from elasticrun.torch.elastic.sharded.grouping import Grouping, regrouped
from elasticrun.torch.elastic.sharded.merging import MemberTensor, merge

WORKER = Path(__file__).parent / "workers" / "sharded_parts.py"
STEPS = 6
#: A failed worker is started again.
RETURNS = ["-H", "localhost:4", "--blacklist-cooldown-range", "0", "0", "--max-host-failures", "0"]


def train(kind: str, least: int, *events: str) -> str:
    """The output of a job of four workers, of which at least so many must be left."""
    multiple = ["--size-multiple", "2"] if kind == "pipeline" else []
    returns = RETURNS if least == 4 else ["--blacklist", "forever"]
    options = ["-np", "4", "--min-np", str(least), *returns, "--replica-group-size", "all", *multiple]
    code, output = run(*options, sys.executable, str(WORKER), kind, str(STEPS), *events)
    assert code == 0, output
    return output


@dataclass
class End:
    """How a job has ended."""

    #: The learning rates of the groups of each stage.
    rates: set[str]
    losses: list[float]

    @classmethod
    def of(cls, output: str, size: int) -> End:
        """The end of a job whose last round had so many workers."""
        done = re.findall(r"done rank (\d+) of (\d+) rates \[(.*)\] losses \[(.*)\]", output)
        assert sorted(int(rank) for rank, *_ in done) == list(range(size)), output
        ((of, losses),) = {(of, losses) for _, of, _, losses in done}
        found = [float(loss) for loss in losses.split(", ")]
        assert of == str(size) and len(found) == STEPS and found[-1] < found[0], output
        return cls({rates for *_, rates, _ in done}, found)


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, End]:
    """The ends of undisturbed jobs. Buckets change no result."""
    zero = End.of(train("zero", 4), 4)
    return {"zero": zero, "zero-buckets": zero, "pipeline": End.of(train("pipeline", 4), 4)}


@pytest.mark.parametrize(
    ("kind", "events", "size"),
    [
        ("zero", ["1@3"], 3),
        pytest.param("zero", ["0@2", "3@2"], 2, marks=pytest.mark.full),
        # No worker has any state of the optimizer.
        pytest.param("zero", ["2@0"], 3, marks=pytest.mark.full),
        pytest.param("zero-buckets", ["0@3"], 3, marks=pytest.mark.full),
        # One of the three survivors completes no pair.
        ("pipeline", ["1@3"], 2),
        pytest.param("pipeline", ["2@3"], 2, marks=pytest.mark.full),
        # The whole second stage is gone.
        pytest.param("pipeline", ["1@4", "3@4"], 2, marks=pytest.mark.full),
        # Others wait for the dead one's part of the exchange before they load. The third survivor of the pipeline takes its place.
        pytest.param("zero-buckets", ["1@3", "load:0@3"], 2, marks=pytest.mark.full),
        pytest.param("pipeline", ["1@3", "load:0@2"], 2, marks=pytest.mark.full),
    ],
)
def test_survivors_go_on_with_the_parts_of_the_dead(
    kind: str, events: list[str], size: int, undisturbed: dict[str, End]
) -> None:
    output = train(kind, size, *events)
    # A round more for a second death.
    assert f"{3 if 'load' in events[-1] else 2} rounds in" in output, output
    digests = dict(re.findall(r">:step (\d+) digest (\w+)", output.split(f"round of {size}")[0]))
    ((step, digest),) = re.findall(rf"round of {size} at step (\d+) digest (\w+)", output)
    assert step == events[0].partition("@")[2], output
    # Bit by bit what the state had in the round before.
    assert step == "0" or digest == digests[step], output
    held = re.findall(rf"rank \d+ of {size} holds the state of (\d+) parameters", output)
    # Four layers of three parameters, an embedding and a head.
    assert step == "0" or sum(map(int, held)) == 14, output
    end, expected = End.of(output, size), undisturbed[kind]
    assert end.losses == pytest.approx(expected.losses, abs=1e-3)
    assert end.rates == expected.rates


@pytest.mark.full
@pytest.mark.parametrize("kind", ["zero", "pipeline"])
def test_a_new_worker_gets_the_parts_of_the_dead_one(kind: str, undisturbed: dict[str, End]) -> None:
    output = train(kind, 4, "1@3")
    (first, step), (at, digest) = re.findall(r"round of 4 at step (\d+) digest (\w+)", output)
    assert (first, at) == ("0", "3") and step != digest, output
    # The same workers do the same additions in the same order.
    digests = [digest for _, digest in sorted(set(re.findall(r">:step (\d+) digest (\w+)", output)))]
    assert len(digests) == STEPS and digest == digests[2], output
    assert End.of(output, 4) == undisturbed[kind]


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


def test_other_groups_have_the_options_of_their_parameters() -> None:
    first = Grouping([["a", "b"], ["c"]], [{"lr": 1}, {"lr": 2}], ["scheduler of 2"])
    second = Grouping([["d"], ["e"], []], [{"lr": 1}, {"lr": 3}, {"lr": 4}], ["scheduler of 3"])
    stored = [first, second]
    assert regrouped(stored, [["d"], ["e"], []]) is second
    moved = [["a", "d"], ["c"]]
    assert regrouped(stored, moved) == Grouping(moved, [{"lr": 1}, {"lr": 2}], first.others)
    for names, message in (
        ([["a", "e"], ["c"]], "a and e in one group"),
        ([["a"], ["f"]], "has the parameter f"),
        ([["a"]], "has 1 groups"),
    ):
        with pytest.raises(StateError, match=message):
            regrouped(stored, names)
