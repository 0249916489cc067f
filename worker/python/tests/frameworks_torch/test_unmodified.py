"""Scripts for Lightning, Transformers and Accelerate that know nothing of elasticrun, with checkpoints of their own."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from support.jobs import run
from support.restarts import resumed_from_a_checkpoint

pytest.importorskip("lightning", reason="Lightning is not installed: run `make test-frameworks`")

SCRIPTS = Path(__file__).parent / "unmodified"


@pytest.mark.parametrize("script", sorted(file.name for file in SCRIPTS.glob("*.py")))
def test_a_killed_rank_restarts_the_group_which_goes_on_from_its_checkpoint(script: str, tmp_path: Path) -> None:
    kill = random.randrange(13, 24)
    flags = ["--nproc-per-node", "2", "--max-restarts", "1"]
    command = [str(SCRIPTS / script), str(tmp_path / "checkpoints"), "2", str(kill)]
    (tmp_path / "checkpoints").mkdir()
    code, output = run("torchrun", *flags, *command, PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin")
    assert code == 0, output
    resumed_from_a_checkpoint(output, kill)
