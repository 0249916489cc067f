"""`elasticrun data plan`: what a change of workers moves."""

import itertools
import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from support import parquet
from support.jobs import TIMEOUT

from elasticrun.data import plan


def ask(*words: object) -> subprocess.CompletedProcess[str]:
    """Calls the program as a user does."""
    program = os.environ.get("ELASTICRUN_BIN", "elasticrun")
    return subprocess.run([program, "data", "plan", *map(str, words)], capture_output=True, text=True, timeout=TIMEOUT)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Eight row groups of 100 rows."""
    return parquet.write(tmp_path / "data", rows=800, files=2, group=100)


def test_the_table_and_the_picture_show_where_rows_go(data: Path, tmp_path: Path) -> None:
    drawing = tmp_path / "plan.svg"
    told = ask(data, "--from", "a:2,b:2", "--to", "a:2,c:1", "--done", "50%", "--svg", drawing)
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[0].endswith("8 row groups, 800 rows; 400 left to 4 workers, then to 3"), lines[0]
    table = {line.split()[0]: line.split()[1:] for line in lines[3:8]}
    assert table["b:0"] == ["100", "0", "0", "0", "0", "gone"]
    assert table["c:0"] == ["0", "0", "0", "133", "133", "new"]
    assert sorted(int(table[name][4]) for name in ("a:0", "a:1", "c:0")) == [133, 133, 134]
    assert table["a:0"][1] == "100", "who stays keeps what it has"
    assert any(line.startswith("moved: 200 rows (50.0 %)") for line in lines)
    assert {"█", "░"} <= set(told.stdout)
    strips = ElementTree.parse(drawing).getroot()
    titles = [title.text for title in strips.iter("{http://www.w3.org/2000/svg}title")]
    assert any(title and title.startswith("c:0: ") for title in titles)


def test_the_plan_as_json_is_disjoint_and_whole(data: Path) -> None:
    told = json.loads(ask(data, "--from", "4", "--to", "7", "--json").stdout)
    ranges = sorted(tuple(own) for worker in told["after"] for own in worker["ranges"])
    assert ranges[0][0] == 0 and ranges[-1][1] == 800
    assert all(one[1] == other[0] for one, other in itertools.pairwise(ranges))
    assert {worker["rows"] for worker in told["after"]} == {114, 115}
    # The lower bound for four workers of 200 rows: the surplus over the new shares, less the odd rows.
    assert told["moved"] == 4 * (200 - 114) - 2
    assert told["moved"] <= told["moved_if_dealt_anew"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", "0", "--to", "2"], "expected workers as in -H"),
        (["--from", "a:1,a:2", "--to", "2"], "expected workers as in -H"),
        (["--from", "a:2*0", "--to", "2"], "somebody has to read the rows"),
        (["--from", "2", "--to", "2", "--done", "120%"], "expected a part from 0% to 100%"),
        (["--from", "2"], "--to"),
    ],
)
def test_wrong_words_are_refused(data: Path, words: list[str], said: str) -> None:
    told = ask(data, *words)
    assert told.returncode == 2
    assert said in told.stderr.splitlines()[-1]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    told = ask(missing, "--from", 2, "--to", 3)
    assert (told.returncode, len(told.stderr.splitlines())) == (2, 1)
    assert str(missing) in told.stderr


def test_workers_may_have_weights() -> None:
    assert plan.workers("a:1,b:2*3") == [("a", 0, 1), ("b", 0, 3), ("b", 1, 3)]
