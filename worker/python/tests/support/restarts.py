"""What the output of an unmodified script says that two workers train for 24 steps, and again after a kill."""

from __future__ import annotations

import re


def resumed_from_a_checkpoint(output: str, kill: int) -> None:
    """Checks that both workers began twice, the second time from one checkpoint before step ``kill``, and ended alike."""
    begins = [int(step) for step in re.findall(r"begins at (\d+) of 24", output)]
    assert len(begins) == 4 and begins[:2] == [0, 0] and begins[2] == begins[3] > 0, output
    assert begins[2] <= kill, output
    done = re.findall(r"done rank (\d) of 2: step 24 sum (\S+)", output)
    assert sorted(rank for rank, _ in done) == ["0", "1"] and len({total for _, total in done}) == 1, output
