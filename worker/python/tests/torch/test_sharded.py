"""Models that are divided among workers go on from memory, at another number of workers, with the same bits."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import parquet
from support.jobs import Job, Starter, job, run

from elasticrun.data import audit

WORKERS = Path(__file__).parent / "workers"
STEPS = 6
#: A failed worker does not return.
SHRINKS = ["-np", "4", "--min-np", "1", "--blacklist", "forever"]
#: A failed worker is started again.
RETURNS = [
    "-np",
    "4",
    "--min-np",
    "4",
    "-H",
    "localhost:4",
    "--blacklist-cooldown-range",
    "0",
    "0",
    "--max-host-failures",
    "0",
]

DONE = re.compile(r"done rank (\d+) of (\d+) step (\d+) rate ([\d.e-]+) digest (\w+) losses \[(.*)\]")


def command(*words: object, kind: str = "fsdp") -> list[str]:
    """The command of a job and its worker."""
    multiple = [] if kind == "fsdp" else ["--size-multiple", "2"]
    script = [sys.executable, str(WORKERS / "sharded.py"), kind]
    return ["--replica-group-size", "all", *multiple, *script, *map(str, words)]


def digests(output: str) -> dict[int, list[str]]:
    """The digests of each step, one for each time that it was done."""
    found: dict[int, list[str]] = {}
    for step, digest in re.findall(r">:step (\d+) digest (\w+)", output):
        found.setdefault(int(step), []).append(digest)
    return found


def check(output: str, sizes: list[int], steps: int | None = STEPS) -> list[float]:
    """Checks the rounds of a job that has ended after so many steps. Returns the losses of its steps."""
    starts = re.findall(r"round of (\d+): rank \d+ at step (\d+) digest (\w+)", output)
    assert starts, output
    committed = digests(output)
    for _, step, digest in starts:
        assert step == "0" or digest in committed[int(step)], (step, digest, output)
    rounds = [int(size) for size, *_ in starts]
    # New workers may come one after the other.
    had = iter(rounds)
    assert rounds[-1] == sizes[-1] and all(size in had for size in sizes), output
    assert steps is None or set(rounds) == set(sizes), output
    done = DONE.findall(output)
    assert sorted(int(rank) for rank, *_ in done) == list(range(sizes[-1])), output
    # All ranks end alike.
    assert len({tuple(rest) for _, *rest in done}) == 1, output
    assert steps is None or done[0][2] == str(steps), output
    return [float(loss) for loss in done[0][5].split(", ")]


def kill_last_agent(job: Job) -> None:
    """Ends the agent of the host that was started last, as the loss of the host would."""
    agents = subprocess.run(["pgrep", "-P", str(job.process.pid)], capture_output=True, text=True, check=True)
    os.kill(int(agents.stdout.split()[-1]), signal.SIGKILL)


@pytest.fixture(scope="module")
def undisturbed() -> list[float]:
    """The losses of one worker."""
    code, output = run("-np", "1", *command(STEPS, "none"))
    assert code == 0, output
    return check(output, [1])


@pytest.mark.parametrize(
    ("events", "base", "size"),
    [
        (["forward:1@3"], 3, 3),
        # Those that wait at the barrier of the commit have not sealed it.
        pytest.param(["commit:2@3"], 2, 3, marks=pytest.mark.full),
        # Rank 0 has sealed the commit that others may not have.
        pytest.param(["sealed:0@4"], None, 3, marks=pytest.mark.full),
        pytest.param(["forward:0@2", "forward:3@2"], 2, 2, marks=pytest.mark.full),
        # The shards of three are in the memory of dead processes only.
        (["all:1@4"], 4, 1),
    ],
)
def test_survivors_go_on_from_the_shards_of_the_dead(
    events: list[str], base: int | None, size: int, tmp_path: Path, undisturbed: list[float]
) -> None:
    code, output = run(*SHRINKS, *command(STEPS, tmp_path, *events))
    assert code == 0, output
    starts = re.findall(rf"round of {size}: rank \d+ at step (\d+)", output)
    assert base is None or set(starts) == {str(base)}, output
    # torch's own checkpoint of that step, loaded by a new model of this size, has the same bits.
    equal = re.findall(rf"rank \d+ of {size} equals checkpoint (\d+): (\d+) tensors", output)
    assert equal == [(starts[0], "58")] * size, output
    assert check(output, [4, size]) == pytest.approx(undisturbed, abs=1e-3)


@pytest.mark.parametrize(
    ("event", "bases"),
    [
        # Its commit of step 3 counts when its optimizer steps again.
        ("forward:1@3", {"2"}),
        # All have sealed that of step 2, before the barrier of this one.
        pytest.param("sealed:0@3", {"2"}, marks=pytest.mark.full),
        # It would have sealed that of step 2 at the beginning of this one.
        pytest.param("commit:2@3", {"1"}, marks=pytest.mark.full),
    ],
)
def test_a_commit_that_is_copied_while_training_goes_on_counts_once_all_have_sealed_it(
    event: str, bases: set[str], tmp_path: Path, undisturbed: list[float]
) -> None:
    code, output = run(*SHRINKS, *command(STEPS, tmp_path, "behind", event))
    assert code == 0, output
    starts = re.findall(r"round of 3: rank \d+ at step (\d+)", output)
    assert set(starts) == bases, output
    equal = re.findall(r"rank \d+ of 3 equals checkpoint (\d+): (\d+) tensors", output)
    assert equal == [(starts[0], "58")] * 3, output
    assert check(output, [4, 3]) == pytest.approx(undisturbed, abs=1e-3)


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        ("tensor", 4),
        pytest.param("hsdp", 4, marks=pytest.mark.full),
        pytest.param("tensor", 8, marks=pytest.mark.full),
        pytest.param("fsdp", 8, marks=pytest.mark.full),
    ],
)
def test_meshes_go_on_at_another_size(kind: str, workers: int, tmp_path: Path) -> None:
    code, output = run("-np", str(workers), *command(STEPS, "none", kind=kind))
    assert code == 0, output
    undisturbed = check(output, [workers])
    shrinks = ["-np", str(workers), "--min-np", "2", "--blacklist", "forever"]
    code, output = run(*shrinks, *command(STEPS, tmp_path, "forward:1@3", kind=kind))
    assert code == 0, output
    # The survivor of a pair completes none. A pair may be a step ahead of the others, which have not sealed commit 3 then.
    left = workers - (1 if kind == "fsdp" else 2)
    equal = re.findall(rf"rank \d+ of {left} equals checkpoint ([23]): 58 tensors", output)
    assert equal in (["2"] * left, ["3"] * left), output
    assert check(output, [workers, left]) == pytest.approx(undisturbed, abs=1e-3)


def test_a_new_worker_gets_the_shard_of_the_dead_one(tmp_path: Path, undisturbed: list[float]) -> None:
    code, output = run(*RETURNS, *command(STEPS, tmp_path, "forward:2@3"))
    assert code == 0, output
    assert len(re.findall(r"rank \d+ of 4 equals checkpoint 3: 58 tensors", output)) == 4, output
    # The same workers do the same additions in the same order.
    assert all(len(set(found)) == 1 for found in digests(output).values()), output
    assert check(output, [4]) == pytest.approx(undisturbed, abs=1e-3)


def test_workers_that_die_while_they_load_the_base_cost_nothing(tmp_path: Path) -> None:
    code, output = run(*SHRINKS, *command(STEPS, tmp_path, "forward:1@3", "loading:0@3", "first:1@2"))
    assert code == 0, output
    assert len(re.findall(r"rank \d+ of 1 equals checkpoint 3: 58 tensors", output)) == 1, output
    check(output, [4, 1])


def large(*words: object) -> list[str]:
    """The command of a job with large tensors, whose memory the allocator gives back to the system."""
    worker = ["env", "MALLOC_MMAP_THRESHOLD_=1000000", sys.executable, str(WORKERS / "sharded_large.py")]
    return ["--replica-group-size", "all", *worker, *map(str, words)]


def gave(output: str) -> list[float]:
    """The parts of the tensors that pages were given to, in rounds after the first one."""
    found = re.findall(r"round (\d+): gave (\d+) of (\d+)", output)
    return [int(given) / int(of) for round_, given, of in found if round_ != "1"]


def check_large(output: str) -> None:
    """Checks that each round began with the bits of a committed step."""
    starts = re.findall(r"round of \d+ at (\d+): (\w+)", output)
    steps = set(re.findall(r"step (\d+): (\w+)", output))
    assert starts and all(start in steps for start in starts if start[0] != "0"), output


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_tensors_take_pages_of_the_model_before(device: str) -> None:
    code, output = run(*SHRINKS, *large(4, device, "forward:1@2"))
    assert code == 0, output
    check_large(output)
    # Survivors had three quarters of what their larger shards need, and have provided the rest.
    assert len(gave(output)) == 3 and min(gave(output)) > 0.9, output
    # So they had for the first commit of the next round.
    provided = max(int(nbytes) for nbytes in re.findall(r"commits have (\d+) in round 1", output))
    later = re.findall(r"\[(\d)\].*commits have (\d+) in round 2", output)
    first = {rank: int(nbytes) for rank, nbytes in reversed(later)}
    assert len(first) == 3 and max(first.values()) <= provided, output


def test_a_new_worker_finds_pages_that_were_provided_while_it_built_its_model() -> None:
    code, output = run(*RETURNS, *large(4, "meta", "forward:1@2"))
    assert code == 0, output
    check_large(output)
    assert len(gave(output)) == 4 and min(gave(output)) > 0.9, output


def test_a_first_commit_that_was_written_and_not_sealed_does_not_count() -> None:
    code, output = run(*SHRINKS, *large(4, "meta", "forward:1@2", "written:0@3"))
    assert code == 0, output
    check_large(output)
    assert re.findall(r"round of 2 at (\d+)", output) == ["2", "2"] and "round of 3" not in output, output


@pytest.mark.parametrize("sizes", [[4, 3, 2, 4], pytest.param([8, 7, 5, 8], marks=pytest.mark.full)])
def test_resizes_by_discovery_repeat_no_step(sizes: list[int], start: Starter, tmp_path: Path) -> None:
    first, *others = sizes
    change = start.hosts(f"localhost:{first}")
    discovery = ["--host-discovery-script", str(tmp_path / "discover.sh"), "--discovery-interval", "100ms"]
    wanted = ",".join(map(str, sizes))
    with job("-np", str(first), "--min-np", "1", *discovery, *command(wanted, tmp_path / "checkpoints")) as one:
        one.until("step 2 digest")
        for slots in others:
            change(f"localhost:{slots}")
            one.until(f"rank 0 of {slots} equals checkpoint")
            one.until("digest")
        text = one.succeed()
    assert all(len(found) == 1 for found in digests(text).values()), text
    check(text, sizes, steps=None)


def test_hosts_that_come_and_go_bring_and_leave_their_shards(start: Starter, tmp_path: Path) -> None:
    change = start.hosts("localhost:2")
    discovery = ["--host-discovery-script", str(tmp_path / "discover.sh"), "--discovery-interval", "100ms"]
    with job("--min-np", "1", *discovery, *command("2,4,2", tmp_path / "checkpoints")) as one:
        one.until("step 2 digest")
        # The new host has no shard, and reads those of the other one.
        change("localhost:2\n127.0.0.1:2")
        one.until("rank 0 of 4 equals checkpoint")
        one.until("digest")
        # The host that leaves has no member of the next round, and its agent serves its shards.
        change("127.0.0.1:2")
        text = one.succeed()
    assert all(len(found) == 1 for found in digests(text).values()), text
    assert len(re.findall(r"rank \d+ of [24] equals checkpoint", text)) >= 6, text
    check(text, [2, 4, 2], steps=None)


def test_a_job_that_has_lost_a_shard_with_its_host_says_so(start: Starter, tmp_path: Path) -> None:
    start.hosts("localhost:2\n127.0.0.1:2")
    discovery = ["--host-discovery-script", str(tmp_path / "discover.sh"), "--elastic-timeout", "3s"]
    words = ["-np", "4", "--min-np", "1", *discovery, *command(10_000, "none")]
    with job(*words) as one:
        one.until("step 2 digest")
        kill_last_agent(one)
        text = one.fail(code=6)
    assert re.search(r"commit [\d.]+ is incomplete, 2 of its 4 shards are lost \(\d, \d\)", text), text


def test_a_replica_of_the_model_survives_the_loss_of_the_other_host(start: Starter, tmp_path: Path) -> None:
    start.hosts("localhost:2\n127.0.0.1:2")
    discovery = ["--host-discovery-script", str(tmp_path / "discover.sh"), "--elastic-timeout", "600s"]
    words = ["-np", "4", "--min-np", "2", *discovery, *command("4,2", tmp_path / "checkpoints", kind="hsdp")]
    with job(*words) as one:
        one.until("step 2 digest")
        kill_last_agent(one)
        text = one.succeed()
    assert len(re.findall(r"rank \d+ of 2 equals checkpoint", text)) >= 2, text
    check(text, [4, 2], steps=None)


CHANGES = """
    import torch
    import elasticrun.torch as er
    from elasticrun.errors import StateError
    from elasticrun.torch.elastic.sharded.writing import Writing
    from torch.distributed.fsdp import fully_shard

    # As if all copies took long.
    Writing.is_copied = lambda writing: False

    def build(mesh):
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64))
        fully_shard(model, mesh=mesh)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    er.init()
    state = er.elastic.ShardedState(build, step=0)

    def step(state):
        state.model(torch.randn(8, 64)).sum().backward()
        state.optimizer.step()
        state.optimizer.zero_grad()
        state.step += 1

    @er.elastic.run
    def train(state):
        step(state)
        with torch.no_grad():
            state.model[0].weight.to_local().clamp_(-1, 1)
        state.commit(async_=True)
        # A buffer changes in the forward pass.
        step(state)
        state.commit(async_=True)
        print("commits with changed buffers", flush=True)
        with torch.no_grad():
            state.model[0].weight.to_local().clamp_(-1, 1)
        for _ in range(2):
            # Others may have made the commit, so this worker makes none.
            try:
                state.commit()
            except StateError as error:
                print("refused:", error, flush=True)
        step(state)

    train(state)
"""


def test_a_parameter_that_changes_while_a_commit_copies_it_is_named(start: Starter) -> None:
    output = start.job("-np 2 --min-np 2 --replica-group-size all", CHANGES).succeed()
    assert "commits with changed buffers" in output, output
    refused = re.findall(r"refused: (.*)", output)
    changed = "0.weight was changed while commit(async_=True) still copied it"
    assert [line.startswith(changed) for line in refused].count(True) == 2, output
    assert [line.startswith("this worker cannot commit in this round any more") for line in refused].count(True) == 2, (
        output
    )


def test_a_commit_of_a_device_is_not_sealed_behind_the_end_of_its_round() -> None:
    flags = ["-np", "3", "--min-np", "2", "--blacklist", "forever", "--replica-group-size", "all"]
    code, output = run(*flags, sys.executable, str(WORKERS / "late_shard.py"))
    assert code == 0, output
    assert re.findall(r"round 2 from (\d)", output) == ["1", "1"], output


def test_reset_callbacks_change_the_options_of_all_workers(start: Starter) -> None:
    """They run in survivors only, and a new worker must not train with another learning rate."""
    text = start.job(
        "-np 3 --min-np 3 -H localhost:3 --blacklist-cooldown-range 0 0 --max-host-failures 0 --replica-group-size all",
        """
        import os, signal, torch
        import elasticrun.torch as er
        from elasticrun import _native
        from torch.distributed.fsdp import fully_shard

        er.init()

        def build(mesh):
            model = torch.nn.Linear(9, 5)
            fully_shard(model, mesh=mesh)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 100)

        def change():
            state.optimizer.param_groups[0]["lr"] = 0.25
            state.others[0].base_lrs = [0.25]
            state.note = "changed"

        state = er.elastic.ShardedState(build, step=0, note="first")
        state.register_reset_callbacks([change])

        @er.elastic.run
        def train(state):
            while state.step < 4:
                if state.step == 2 and er.rank() == 1 and _native.world().round == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                state.step += 1
                state.commit()
            rate, base = state.optimizer.param_groups[0]["lr"], state.others[0].base_lrs
            print(f"END rate {rate} base {base} note {state.note}", flush=True)

        train(state)
        """,
    ).succeed()
    assert text.count("END rate 0.25 base [0.25] note changed") == 3, text


@pytest.mark.parametrize(
    ("fail_rank", "words"), [(0, []), pytest.param(3, [], marks=pytest.mark.full), (3, ["behind"])]
)
def test_tensor_parallel_workers_read_the_same_rows_and_each_counts_once(
    fail_rank: int, words: list[str], tmp_path: Path
) -> None:
    data = parquet.write(tmp_path / "data", rows=400)
    script = [
        sys.executable,
        str(WORKERS / "sharded_rows.py"),
        str(data),
        str(tmp_path / "audit"),
        "400",
        str(fail_rank),
        *words,
    ]
    code, output = run(
        "-np", "4", "--min-np", "2", "--blacklist", "forever", "--replica-group-size", "all", "--size-multiple", "2", *script
    )  # fmt: skip
    assert code == 0, output
    # Four steps of two shares, or three if the other pair has not sealed the fourth commit, and the rest in steps of one.
    assert re.findall(r"\[1\.0\] in (\d+) steps", output) in (["36"] * 2, ["37"] * 2), output
    assert len(re.findall(r"of 4: rank [01] reads share 0 of 2", output)) == 2, output
    seen = audit.read(tmp_path / "audit")
    assert seen.repeated() == []
    assert len(seen.rows[0]) == 400
