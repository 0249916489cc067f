"""torchrun --rdzv-backend=elasticrun: real torchrun processes, each a node, on one machine."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from support.jobs import Starter
from support.torchrun import Nodes, wait_for_nodes


@pytest.fixture
def nodes(start: Starter, tmp_path: Path) -> Nodes:
    return Nodes(start, tmp_path)


def test_two_nodes_train(nodes: Nodes) -> None:
    jobs = [nodes.start("2"), nodes.start("2")]
    text = "\n".join(job.succeed() for job in jobs)
    assert sorted(re.findall("TRAINS .*", text)) == ["TRAINS rank 0 of 2, sum 2", "TRAINS rank 1 of 2, sum 2"]
    assert text.count("DONE") == 2


def test_a_node_that_comes_late_is_taken_in(nodes: Nodes) -> None:
    jobs = [nodes.start("2:3", waits=True) for _ in range(2)]
    for job in jobs:
        job.until("of 2, sum 2")
    jobs.append(nodes.start("2:3", waits=True))
    for job in jobs:
        job.until("of 3, sum 3")
    nodes.tell()
    for job in jobs:
        job.succeed()


def test_after_sigterm_of_a_node_the_others_go_on_at_once(nodes: Nodes) -> None:
    # Without its word, they would miss it after three hours.
    jobs = [nodes.start("2:3", "keep_alive_interval=3600", waits=True) for _ in range(3)]
    for job in jobs:
        job.until("of 3, sum 3")
    jobs[2].process.send_signal(signal.SIGTERM)
    for job in jobs[:2]:
        job.until("of 2, sum 2")
    nodes.tell()
    for job in jobs[:2]:
        job.succeed()
    assert "SignalException" in jobs[2].fail()


def test_a_node_that_is_killed_is_missed_by_its_heartbeats(nodes: Nodes) -> None:
    jobs = [nodes.start("2:3", "keep_alive_interval=1", waits=True) for _ in range(3)]
    for job in jobs:
        job.until("of 3, sum 3")
    # Its worker ends by the loss of its peers.
    jobs[2].process.kill()
    for job in jobs[:2]:
        job.until("of 2, sum 2")
    nodes.tell()
    for job in jobs[:2]:
        job.succeed()


def test_a_redundant_node_ends_well_with_the_job(nodes: Nodes) -> None:
    jobs = [nodes.start("2", waits=True) for _ in range(2)]
    for job in jobs:
        job.until("of 2, sum 2")
    redundant = nodes.start("2", waits=True)
    wait_for_nodes(nodes, 3)
    nodes.tell()
    for job in jobs:
        job.succeed()
    assert "TRAINS" not in redundant.succeed()


def test_a_redundant_node_takes_over(nodes: Nodes) -> None:
    jobs = [nodes.start("2", waits=True) for _ in range(2)]
    for job in jobs:
        job.until("of 2, sum 2")
    jobs.append(nodes.start("2", waits=True))
    wait_for_nodes(nodes, 3)
    jobs[1].process.send_signal(signal.SIGTERM)
    jobs[0].until("of 2, sum 2")
    jobs[2].until("of 2, sum 2")
    nodes.tell()
    jobs[0].succeed()
    jobs[2].succeed()


def test_two_runs_share_an_endpoint_and_its_server_stays_for_both(nodes: Nodes) -> None:
    first = nodes.start("1", run_id="first")
    second = nodes.start("1", run_id="second", waits=True)
    second.until("of 1, sum 1")
    first.until("still serving the rendezvous of 1 nodes of other runs")
    nodes.tell()
    second.succeed()
    first.succeed()


def test_a_failure_restarts_the_workers_of_all_nodes(nodes: Nodes, start: Starter, tmp_path: Path) -> None:
    once = tmp_path / "once"
    nodes.script = start.script(
        f"""
        import os, sys
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        if dist.get_rank() == 0 and not os.path.exists({str(once)!r}):
            open({str(once)!r}, "w").close()
            os._exit(3)
        dist.barrier()
        print("DONE of", dist.get_world_size(), flush=True)
        """,
        "fails_once.py",
    )
    jobs = [nodes.start("2"), nodes.start("2")]
    for job in jobs:
        assert "DONE of 2" in job.succeed()


def test_a_job_that_failed_ends_on_all_nodes(nodes: Nodes, start: Starter) -> None:
    nodes.script = start.script("raise SystemExit(7)", "fails.py")
    jobs = [nodes.start("2", restarts=0), nodes.start("2", restarts=0)]
    for job in jobs:
        assert "exitcode  : 7" in job.fail()


def test_a_node_after_the_end_is_told(nodes: Nodes) -> None:
    first = nodes.start("1", run_id="first")
    keeper = nodes.start("1", run_id="keeper", waits=True)
    keeper.until("of 1, sum 1")
    first.until("still serving")
    text = nodes.start("1", run_id="first").fail()
    assert text.splitlines()[-1].endswith("RendezvousClosedError: the rendezvous is closed")
    nodes.tell()
    keeper.succeed()
    first.succeed()


def test_an_endpoint_out_of_reach_is_named_in_one_line(nodes: Nodes) -> None:
    nodes.has_server = True
    text = nodes.start("1", "is_host=0", "read_timeout=1").fail()
    last = text.splitlines()[-1].removeprefix("torch.distributed.elastic.rendezvous.api.")
    assert last.startswith("RendezvousConnectionError: no rendezvous at 127.0.0.1:")
    assert "Connection refused" in last
    assert "During handling" not in text
    assert "direct cause" not in text


def test_too_few_nodes_are_a_timeout(nodes: Nodes) -> None:
    text = nodes.start("2", "join_timeout=1").fail()
    assert "RendezvousTimeoutError: the rendezvous did not complete in time" in text.splitlines()[-1]


def test_a_node_without_its_server_fails_in_time(nodes: Nodes) -> None:
    conf = ("keep_alive_interval=1", "heartbeat_timeout=1", "read_timeout=2")
    jobs = [nodes.start("2", *conf, waits=True) for _ in range(2)]
    for job in jobs:
        job.until("of 2, sum 2")
    jobs[0].process.send_signal(signal.SIGTERM)
    jobs[0].fail()
    text = jobs[1].fail()
    assert "its server has ended or cannot be reached" in text.splitlines()[-1]


def test_torch_without_the_back_end_does_not_load_this_package(start: Starter) -> None:
    text = start.alone("""
        import sys
        from torch.distributed.elastic.rendezvous import rendezvous_handler_registry
        print("REGISTERED", "elasticrun" in rendezvous_handler_registry._registry)
        print("LOADED", [name for name in sys.modules if name.split(".")[0] == "elasticrun"])
    """)
    assert "REGISTERED True" in text
    assert "LOADED []" in text


def test_gloo_is_left_alone_in_a_program_that_is_no_worker(start: Starter) -> None:
    text = start.alone("""
        import torch.distributed as dist
        import elasticrun.torch.rendezvous
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        print("SIZE", dist.get_world_size())
    """)
    assert "SIZE 1" in text
