"""Hosts that need one shard pass it on to each other, so that its holder sends it once."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from support.jobs import Starter, job

WORKER = Path(__file__).parent / "workers" / "passing.py"
#: One host stays. The others go, and as many come.
BEFORE = "localhost:2\n127.0.0.1:2\n127.0.0.2:2\n127.0.0.3:2"
AFTER = "localhost:2\n127.0.0.4:2\n127.0.0.5:2\n127.0.0.6:2"
MEGABYTES = 12


def command(folder: Path, *words: object) -> list[str]:
    """A job of eight workers on four hosts, each of which holds the model in two shards."""
    discovery = ["--host-discovery-script", str(folder / "discover.sh"), "--discovery-interval", "100ms"]
    flags = ["-np", "8", "--min-np", "8", "--max-np", "8", "--elastic-timeout", "600s", "--replica-group-size", "2"]
    flags += ["--blacklist", "forever", "--log-format", "json", "--log-level", "debug"]
    return [*flags, *discovery, sys.executable, str(WORKER), str(MEGABYTES), *map(str, words)]


def sent(text: str, words: str) -> dict[str, float]:
    """Megabytes of commits that the agents of hosts have sent in this way."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not (words in line and line.startswith("{")):
            continue
        record = json.loads(line)
        (host,) = (span["id"] for span in record["spans"] if span["name"] == "host")
        count = re.search(r"bytes=(\d+)", record["message"])
        assert count, line
        found[host] = found.get(host, 0) + int(count[1]) / (1 << 20)
    return found


def check(text: str) -> None:
    """Checks that all workers of the second round have begun with the bytes of a commit."""
    digests = set(re.findall(r"step (\d+) shard \d digest (\w+)", text))
    starts = re.findall(r"round of 8: rank \d at step ([1-9]\d*) digest (\w+)", text)
    assert len(starts) >= 8 and set(starts) <= digests, text


def test_new_hosts_read_one_copy_from_a_host_that_has_it(start: Starter, tmp_path: Path) -> None:
    change = start.hosts(BEFORE)
    with job(*command(tmp_path, 6)) as one:
        one.until("step 2 shard")
        change(AFTER)
        text = one.succeed()
    check(text)
    # Two shards, and the heads and headers that each member reads by itself.
    total = 2 * MEGABYTES
    own = sent(text, "parts of a commit are sent")
    assert total <= own.pop("localhost") < 1.1 * total, text
    assert own == {}, text
    # The first and the second of the new hosts: to their own members, and to the next host.
    passed = sent(text, "parts of a commit are passed on")
    assert {host: round(megabytes) for host, megabytes in passed.items()} == {
        "127.0.0.4": 2 * total,
        "127.0.0.5": 2 * total,
    }, text


@pytest.mark.full
def test_the_loss_of_a_link_during_the_load_leads_to_another_round(start: Starter, tmp_path: Path) -> None:
    change = start.hosts(BEFORE)
    with job(*command(tmp_path, 6, "lost", tmp_path / "lost")) as one:
        one.until("step 2 shard")
        change(f"{AFTER}\n127.0.0.7:2")
        text = one.succeed()
    assert (tmp_path / "lost").exists(), text
    check(text)
