"""A script for Composer that knows nothing of elasticrun, with checkpoints of its own."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import pytest
from support.jobs import run

# The directory of this file is a package of the name without `trainer`.
pytest.importorskip(
    "composer.trainer", reason="Composer is not installed: run `worker/python/test_frameworks.sh composer`"
)

SCRIPT = Path(__file__).parent / "workers" / "fit.py"


def test_a_killed_rank_restarts_the_group_which_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    kill = random.randrange(13, 24)
    command = [str(SCRIPT), str(tmp_path), "2", str(kill)]
    # Only Composer's own launcher sets NODE_RANK.
    env = {"NODE_RANK": "0", "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    code, output = run("torchrun", "--nproc-per-node", "2", "--max-restarts", "1", *command, **env)
    assert code == 0, output
    begins = [int(step) for step in re.findall(r"begins at (\d+) of 24", output)]
    assert len(begins) == 4 and begins[:2] == [0, 0] and begins[2] == begins[3] > 0, output
    assert begins[2] <= kill, output
    done = re.findall(r"done rank (\d) of 2: step 24 sum (\S+)", output)
    assert sorted(rank for rank, _ in done) == ["0", "1"] and len({total for _, total in done}) == 1, output
