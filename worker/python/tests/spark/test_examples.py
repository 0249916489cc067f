"""The digits, by a Spark program and from the shell."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from cluster import SUBMIT
from jobs import Bench
from support.jobs import Job
from test_shell import elasticrun

EXAMPLES = Path(__file__).parents[4] / "examples/spark"


def share(text: str) -> float:
    """The accuracy that the example prints, 0 to 1."""
    found = re.search(r"reads ([\d.]+)% of the test digits", text)
    assert found, text
    return float(found[1]) / 100


def test_a_spark_program_learns_to_read_digits(bench: Bench, free: None):
    environment = {**bench.cluster.environment(), "PYSPARK_SUBMIT_ARGS": SUBMIT}
    with Job([sys.executable, str(EXAMPLES / "digits.py"), bench.cluster.master], **environment) as job:
        text = job.succeed()
    assert share(text) > 0.9
    assert re.search(r"\[\(0, \d\), \(1, \d\)", text), text
    print(text)


def test_the_shell_learns_to_read_digits(bench: Bench, free: None):
    counts = ["-np", "2", "--min-np", "1", "--max-np", "4"]
    command = ["python3", "-m", "elasticrun.examples.digits"]
    ended = elasticrun(bench, "--spark", bench.cluster.master, *counts, *command)
    assert ended.returncode == 0, ended.stderr
    assert share(ended.stdout) > 0.9
    print(ended.stdout, ended.stderr)
