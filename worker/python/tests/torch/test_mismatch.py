"""Mismatching calls raise an error with rank and tensor, on all ranks and without a timeout."""

import re
import sys
from pathlib import Path

import pytest
from support.jobs import run

SCRIPT = Path(__file__).parent / "workers" / "mismatch.py"
ONE_AND_OTHER = {
    "shape": ("'weight'(float32[4]", "'weight'(float32[3]"),
    "same-count": ("'weight'(float32[3, 2]", "'weight'(float32[2, 3]"),
    "dtype": ("'weight'(float64[3]", "'weight'(float32[3]"),
    "name": ("allreduce 'bias'", "allreduce 'weight'"),
    "op": ("op=max", "op=min"),
    "call": ("allgather 'weight'", "allreduce 'weight'"),
    "root": ("root=1", "root=0"),
    "columns": ("'weight'(float32[2, 4]", "'weight'(float32[2, 3]"),
    "parameters": ("broadcast 'weight'(float32[4]", "broadcast 'weight'(float32[3]"),
    "model": ("'1.weight' of rank 1 is float32[5, 4]", "'1.weight' of rank 0 is float32[4, 4]"),
    "join": ("rank 1 has joined", "calls broadcast 'weight'"),
    "join-max": ("rank 1 has joined", "calls allreduce 'weight'"),
}


@pytest.mark.parametrize("case", ONE_AND_OTHER)
def test_all_ranks_are_told_who_differs_and_where(case: str) -> None:
    code, output = run("-np", "3", sys.executable, str(SCRIPT), case)
    told = re.findall(r"\[\d\]<stdout>:(.*)", output)
    assert len(told) == 3, output
    for line in told:
        assert line.startswith("CollectiveMismatch: "), output
        assert all(words in line for words in ONE_AND_OTHER[case]), output
        assert "rank 1" in line
    assert code == 0, output
