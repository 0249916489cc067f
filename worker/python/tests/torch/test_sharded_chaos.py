"""Random kills and resizes of a job whose state is divided: no commit is lost, and each shard has the right values."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
from pathlib import Path

from support.jobs import Job, Starter, job

WORKER = Path(__file__).parent / "workers" / "sharded_counter.py"
SEED = 20
#: Two hundred in the whole matrix.
KILLS = int(os.environ.get("ELASTICRUN_KILLS", "10"))
SLOTS = [2, 3, 4]


def members(one: Job) -> list[int]:
    """The processes of the round that started last."""
    found = re.findall(r"ROUND (\d+) OF \d+ RANK \d+ PID (\d+)", one.text)
    newest = max(int(number) for number, _ in found)
    return [int(pid) for number, pid in found if int(number) == newest]


def kill(one: Job, rng: random.Random) -> bool:
    try:
        os.kill(rng.choice(members(one)), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def test_kills_and_resizes_lose_no_commit(start: Starter, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    change = start.hosts("localhost:4")
    stop = tmp_path / "stop"
    flags = [
        "--min-np",
        "1",
        "--blacklist-cooldown-range",
        "0",
        "0",
        "--max-host-failures",
        "0",
        "--failure-domain",
        "slot",
    ]
    discovery = ["--host-discovery-script", str(tmp_path / "discover.sh"), "--discovery-interval", "100ms"]
    words = [*flags, "--max-restarts", "1000", *discovery, "--replica-group-size", "all"]
    with job(*words, sys.executable, str(WORKER), str(stop)) as one:
        one.until("TRAINS")
        kills = 0
        while kills < KILLS:
            if rng.random() < 0.3:
                change(f"localhost:{rng.choice(SLOTS)}")
            if kill(one, rng):
                kills += 1
                one.until("TRAINS")
        stop.touch()
        text = one.succeed()
    assert "ENDED" in text
    newest = 0
    for committed, begins in re.findall(r"COMMITTED (\d+)|RANK 0 PID \d+ AT (\d+)", text):
        # Rank 0 may have sealed a commit that another worker died before sealing.
        assert not begins or int(begins) >= newest - 1, text
        newest = max(newest, int(committed or 0))
    assert newest > KILLS
