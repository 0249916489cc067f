"""torchrun --rdzv-backend=elasticrun --rdzv-endpoint=etcd://...: no node serves, and any may be lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.etcd import Etcd, running_etcd
from support.jobs import Starter
from support.torchrun import Nodes, wait_for_nodes


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    with running_etcd(tmp_path) as etcd:
        yield etcd


@pytest.fixture
def nodes(start: Starter, tmp_path: Path, etcd: Etcd) -> Nodes:
    return Nodes(start, tmp_path, etcd.address)


def test_nodes_train_and_one_that_comes_late_is_taken_in(nodes: Nodes) -> None:
    jobs = [nodes.start("2:3", waits=True) for _ in range(2)]
    for job in jobs:
        job.until("of 2, sum 2")
    jobs.append(nodes.start("2:3", waits=True))
    for job in jobs:
        job.until("of 3, sum 3")
    nodes.tell()
    for job in jobs:
        assert "have not left" not in job.succeed()


def test_after_sigterm_of_the_first_node_the_others_go_on_at_once(nodes: Nodes) -> None:
    # Without its word, they would miss it after three hours.
    first = nodes.start("2:3", "keep_alive_interval=3600", waits=True)
    wait_for_nodes(nodes, 1)
    jobs = [nodes.start("2:3", "keep_alive_interval=3600", waits=True) for _ in range(2)]
    for job in (first, *jobs):
        job.until("of 3, sum 3")
    assert "TRAINS rank 0" in first.text
    first.process.send_signal(signal.SIGTERM)
    for job in jobs:
        job.until("of 2, sum 2")
    nodes.tell()
    for job in jobs:
        job.succeed()
    assert "SignalException" in first.fail()


def test_the_first_node_is_killed_and_the_others_go_on(nodes: Nodes) -> None:
    first = nodes.start("2:3", "keep_alive_interval=1", waits=True)
    wait_for_nodes(nodes, 1)
    jobs = [nodes.start("2:3", "keep_alive_interval=1", waits=True) for _ in range(2)]
    for job in (first, *jobs):
        job.until("of 3, sum 3")
    # Its worker ends by the loss of its peers.
    first.process.kill()
    for job in jobs:
        job.until("of 2, sum 2")
    nodes.tell()
    for job in jobs:
        job.succeed()


def test_nodes_train_on_while_etcd_is_away_for_less_than_a_lease(nodes: Nodes, etcd: Etcd) -> None:
    jobs = [nodes.start("2", waits=True) for _ in range(2)]
    for job in jobs:
        job.until("of 2, sum 2")
    etcd.pause()
    nodes.tell()
    for job in jobs:
        job.until("DONE")
    etcd.resume()
    for job in jobs:
        assert job.succeed().count("TRAINS") == 1


def test_an_etcd_out_of_reach_is_named_in_one_line(nodes: Nodes, etcd: Etcd) -> None:
    etcd.pause()
    text = nodes.start("1", "read_timeout=1").fail()
    etcd.resume()
    last = text.splitlines()[-1].removeprefix("torch.distributed.elastic.rendezvous.api.")
    assert last.startswith(f"RendezvousConnectionError: the rendezvous in {etcd.address} cannot be reached")
    assert "During handling" not in text


def test_options_of_tls_are_checked(nodes: Nodes) -> None:
    for conf, words in [
        ("ca_cert=/no/such", "need protocol=https"),
        ("protocol=ftp", "protocol must be http or https"),
        ("protocol=https,ca_cert=/no/such", "/no/such"),
    ]:
        assert words in nodes.start("1", conf).fail().splitlines()[-1]
