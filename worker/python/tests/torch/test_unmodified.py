"""Scripts with torch that know nothing of elasticrun: a failure restarts them as a group, as torchrun does."""

import re
import sys
from pathlib import Path

from support.jobs import run

SCRIPT = str(Path(__file__).parent / "workers" / "snapshots.py")


def sums(output: str) -> set[str]:
    """What the ranks that got to the end have for parameters."""
    return set(re.findall(r"DONE rank \d+ of 2 step 12 sum (\S+)", output))


def test_a_killed_rank_restarts_the_group_which_goes_on_from_its_snapshot(tmp_path: Path) -> None:
    def train(name: str, fatal: int) -> str:
        words = [sys.executable, SCRIPT, str(tmp_path / name), "12", str(fatal)]
        code, output = run("-np", "2", "--max-restarts", "1", *words)
        assert code == 0, output
        return output

    undisturbed, output = train("undisturbed", 0), train("killed", 5)
    begins = re.findall(r"BEGIN rank \d of 2 from step (\d+) port (\d+) restarts (\d)", output)
    first, second = (sorted(begin for begin in begins if begin[2] == n) for n in "01")
    assert len(first) == len(second) == 2, output
    assert {step for step, *_ in second} == {"5"}, output
    assert {port for _, port, _ in first} != {port for _, port, _ in second}, output
    assert sums(output) == sums(undisturbed) and len(sums(output)) == 1, output
