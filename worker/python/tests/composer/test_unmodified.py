"""A script for Composer that knows nothing of elasticrun, with checkpoints of its own."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from support.jobs import run
from support.restarts import resumed_from_a_checkpoint

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
    resumed_from_a_checkpoint(output, kill)
