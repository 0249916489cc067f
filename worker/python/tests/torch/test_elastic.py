"""Training with torch through failures and growth, in real jobs."""

import re
import sys
from pathlib import Path

import pytest
from support import newcomers
from support.jobs import job, run

WORKERS = Path(__file__).parent / "workers"
MODES = ["hvd", "elasticrun", "gloo"]
SUM = re.compile(r"done rank (\d+) of (\d+): step (\d+) seen (\d+) sum ([\d.]+)")


def script(name: str) -> list[str]:
    """The command of a worker."""
    return [sys.executable, str(WORKERS / name)]


def results(output: str) -> list[tuple[int, ...]]:
    """(size, step, seen) of each rank that got to the end; and all have the same parameters."""
    found = SUM.findall(output)
    assert found, output
    assert len({total for *_, total in found}) == 1, output
    return [(int(size), int(step), int(seen)) for _, size, step, seen, _ in found]


def parameters(output: str) -> float:
    return float(SUM.findall(output)[0][4])


@pytest.fixture(scope="module")
def undisturbed() -> float:
    """What one worker makes of the 20 steps."""
    code, output = run("-np", "1", *script("train.py"), "hvd", "20")
    assert code == 0, output
    return parameters(output)


@pytest.mark.parametrize("mode", MODES)
def test_a_killed_worker_costs_nothing_but_time(mode: str, undisturbed: float) -> None:
    code, output = run(
        "-np", "3", "--min-np", "2", "--blacklist", "forever",
        *script("train.py"), mode, "20", "1", "8",
    )  # fmt: skip
    assert code == 0, output
    assert results(output) == [(2, 20, 240)] * 2
    assert "of 2 from step 8" in output
    assert parameters(output) == pytest.approx(undisturbed, abs=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_a_host_that_comes_is_used_and_nothing_is_done_again(mode: str, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:1\n")
    discovery = tmp_path / "discover"
    discovery.write_text(f"#!/bin/sh\ncat {hosts}\n")
    discovery.chmod(0o755)
    with job(
        "--min-np", "1", "--host-discovery-script", str(discovery), "--discovery-interval", "100ms",
        *script("train.py"), mode, "200@2",
    ) as one:  # fmt: skip
        one.until("committed 20 with 1")
        hosts.write_text("localhost:1\n127.0.0.1:1\n")
        one.until("of 2 from step")
        text = one.succeed()
        # Each step saw one batch of 12, and both workers did the same ones.
        first, second = results(text)
        assert first == second
        assert first[0] == 2 and first[1] > 220 and first[2] == 12 * first[1]
        # Rank 0 stops at a boundary and continues there, so each commit occurs once.
        steps = [int(step) for step in re.findall(r"committed (\d+) with", text)]
        assert steps == sorted(set(steps))


def test_an_operation_that_only_an_abort_ends_is_aborted_at_once() -> None:
    code, output = run("-np", "3", "--min-np", "2", "--blacklist", "forever", *script("hanging_group.py"))
    assert code == 0, output
    assert len(re.findall(r"ended after [\d.]+ s, step 1", output)) == 2, output


def test_an_operation_of_gloo_ends_though_its_peer_lives_and_has_gone_on() -> None:
    code, output = run("-np", "3", "--min-np", "2", "--blacklist", "forever", *script("left_behind.py"))
    assert code == 0, output
    assert len(re.findall(r"done rank \d of 2", output)) == 2, output


@pytest.mark.parametrize("case", ["recv", "early", "left", "send", "group", "future", "gone", "made"])
def test_who_waits_for_one_that_dies_or_leaves_goes_on_in_the_next_round(case: str) -> None:
    code, output = run("-np", "4", "--min-np", "3", "--blacklist", "forever", *script("missed.py"), case)
    assert code == 0, output
    assert len(re.findall(r"done rank \d of 3", output)) == 3, output


@pytest.mark.parametrize("case", ["then", "hook", "store"])
def test_a_collective_that_a_callback_waits_for_ends_when_a_rank_dies(case: str) -> None:
    """A survivor that does not come back from its callback is killed by the driver, and the job fails."""
    code, output = run("-np", "3", "--min-np", "2", "--blacklist", "forever", *script("callbacks.py"), case)
    assert code == 0, output
    assert re.findall(r"round (\d) from step (\d)", output).count(("2", "4")) == 2, output
    # Four steps of three ranks, four of two: none is lost, none is made twice.
    assert re.findall(r"done rank \d of (\d) step (\d) total (\d+)", output) == [("2", "8", "20")] * 2, output
    assert "it took too long" not in output, output


def test_a_worker_ends_well_right_behind_an_operation_of_gloo() -> None:
    """Of 50 processes that end like this in plain torch, 16 aborted; see elasticrun/torch/gloo_shutdown.py."""
    for _ in range(3):
        code, output = run("-np", "2", *script("leaves.py"))
        assert code == 0, output


def test_a_message_that_no_rank_receives_does_not_keep_a_job_from_its_end() -> None:
    code, output = run("-np", "2", *script("leftover.py"), "end")
    assert code == 0, output
    assert output.count("done rank") == 2, output


def test_a_message_longer_than_its_receiver_expects_ends_the_process() -> None:
    """As docs/python.md says. gloo aborts the process; the job names it."""
    code, output = run("-np", "2", *script("leftover.py"), "size")
    assert code == 1, output
    assert "expects 2" in output and "received" not in output, output
    assert re.search(r"rank 1, round 1, signal 6", output.splitlines()[-1]), output


@pytest.mark.parametrize("victim", [1, 2])
def test_an_operation_that_gloo_forgets_ends_with_its_round(victim: int) -> None:
    code, output = run(
        "-np", "3", "--min-np", "2", "--blacklist", "forever",
        *script("forgotten.py"), str(victim),
    )  # fmt: skip
    assert code == 0, output
    assert re.findall(r"done rank (\d) of (\d)", output).count(("0", "2")) == 1, output
    assert "did not close" not in output


def test_a_commit_behind_the_end_of_a_round_is_refused_where_torch_s_own_groups_were_cut_short() -> None:
    code, output = run("-np", "3", "--min-np", "2", "--blacklist", "forever", *script("late_commit.py"))
    assert code == 0, output
    assert re.findall(r"round 2 from (\d)", output) == ["1", "1"], output


def test_a_newcomer_that_loses_another_in_its_first_sync_goes_on_from_the_base(start):
    """With reset callbacks, as every script of Horovod has them; the loss of it was silent."""
    text = start.job(
        newcomers.FLAGS,
        newcomers.PRELUDE
        + """
import torch
import elasticrun as e
import elasticrun.torch as hvd

hvd.init()
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(model.weight)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=model.named_parameters()
)
state = hvd.elastic.TorchState(model, optimizer, step=0)
state.register_reset_callbacks([lambda: print("RESET FROM", state.step)])
state.set_check_hosts_added_delay(1000)

@hvd.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    while state.step < 20:
        if state.step == 10:
            die_together()
        optimizer.zero_grad()
        (-model(torch.ones(1, 1))).sum().backward()
        optimizer.step()
        state.step += 1
        state.commit()
    print("WEIGHT", model.weight.item())
train(state)
""",
    ).succeed()
    assert [entry[1:] for entry in start.rounds(text)] == [(0, 2, 0), (1, 2, 0), (0, 2, 10), (1, 2, 10)], text
    assert text.count("WEIGHT 20.0") == 2 and "RESET FROM 0" not in text, text


def test_workers_that_are_no_replicas_are_told_what_differs() -> None:
    code, output = run("-np", "3", "--min-np", "2", *script("diverged.py"), "shards")
    assert code == 1, output
    told = re.findall(r"StateError: (.*)", output)
    assert len(told) >= 2, output
    for line in told:
        assert line.startswith("model[0.weight] of rank 0 is float32[4, 4], that of rank 1 is"), output


def test_what_replicas_may_differ_in_costs_nothing() -> None:
    code, output = run("-np", "3", "--min-np", "2", *script("diverged.py"), "harmless")
    assert code == 0, output
    assert output.count("from step 2 note ''") == 2, output
    assert len(re.findall(r"done with note", output)) == 2, output
