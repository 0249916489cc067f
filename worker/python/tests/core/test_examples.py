"""The examples that come with the package, on their data."""

from __future__ import annotations

import re
import sys
from collections import Counter

import pytest

from elasticrun import _binary
from elasticrun.examples import data


def share(text):
    """The accuracy that an example prints, 0 to 1."""
    return float(re.search(r"reads ([\d.]+)% of the test digits", text)[1]) / 100


def test_the_data_is_that_of_its_source():
    train, test = data.load()
    assert (len(train), len(test)) == (1438, 359)
    labels = Counter(digit.label for digit in train + test)
    assert [labels[digit] for digit in range(10)] == [
        178,
        182,
        177,
        183,
        181,
        182,
        181,
        179,
        174,
        180,
    ]
    assert all(len(digit.pixels) == 64 and max(digit.pixels) <= 1 for digit in train + test)
    assert len(set(train)) + len(set(test)) == len({*train, *test})


@pytest.mark.parametrize(("example", "least"), [("digits", 0.92), ("numpy_digits", 0.95)])
@pytest.mark.parametrize("workers", [None, 2])
def test_digits_are_learned(start, example, least, workers):
    command = [sys.executable, "-m", f"elasticrun.examples.{example}"]
    if workers:
        command = [str(_binary.find()), "-np", str(workers), *command]
    text = start.command(*command).succeed()
    assert share(text) >= least
    assert f"{workers or 1} workers" in text


def test_digits_are_learned_through_a_failure(start):
    text = start.job(
        "-np 3 --min-np 2 -H localhost:3 --blacklist forever",
        """
        import os, signal
        import elasticrun
        from elasticrun.examples import numpy_digits

        commit = elasticrun.ArrayState.commit

        def commit_or_die(state):
            commit(state)
            if elasticrun.world().round == 1 and elasticrun.rank() == 1 and state.sampler.epoch == 2:
                os.kill(os.getpid(), signal.SIGKILL)

        elasticrun.ArrayState.commit = commit_or_die
        numpy_digits.main()
        """,
    ).succeed()
    assert share(text) >= 0.95
    assert "epoch 2: loss" in text
    assert re.search(r"epoch 3: loss [\d.]+, 2 workers", text)
