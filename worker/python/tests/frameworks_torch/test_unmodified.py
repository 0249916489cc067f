"""Scripts for Lightning, Transformers and Accelerate that know nothing of elasticrun, with checkpoints of their own."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import pytest
from support.jobs import run

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
    begins = [int(step) for step in re.findall(r"begins at (\d+) of 24", output)]
    assert len(begins) == 4 and begins[:2] == [0, 0] and begins[2] == begins[3] > 0, output
    assert begins[2] <= kill, output
    done = re.findall(r"done rank (\d) of 2: step 24 sum (\S+)", output)
    assert sorted(rank for rank, _ in done) == ["0", "1"] and len({total for _, total in done}) == 1, output
