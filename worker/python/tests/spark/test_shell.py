"""``elasticrun --spark MASTER``: the way without a program."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from cluster import SUBMIT
from jobs import Bench

from elasticrun import _binary

SCRIPT = """
import elasticrun as e
e.init()
state = e.ObjectState(total=0.0, step=0)

@e.elastic.run
def train(state):
    while state.step < 5:
        state.total += e.allreduce(1.0, e.Sum)
        state.step += 1
        state.commit()

train(state)
print("RANK", e.rank(), "OF", e.size(), "TOTAL", state.total)
"""


def elasticrun(bench: Bench, *words: str, settings: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **variables,
        **bench.cluster.environment(),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"{settings} {SUBMIT}",
    }
    return subprocess.run(
        [os.fspath(_binary.find()), *words],
        env=environment,
        cwd=bench.folder,
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.mark.quick
def test_a_script_runs_on_the_executors(bench: Bench, free: None):
    (bench.folder / "sub").mkdir()
    (bench.folder / "sub" / "train.py").write_text(SCRIPT)
    counts = ["-np", "2", "--min-np", "1", "--max-np", "3"]
    ended = elasticrun(bench, "--spark", bench.cluster.master, *counts, "python3", "sub/train.py")
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if "RANK" in line]
    assert [line.split("RANK")[1].split()[0] for line in sorted(lines)] == [str(rank) for rank in range(len(lines))]
    assert len(lines) >= 2, ended.stdout
    assert "succeeded" in ended.stderr


def test_spark_may_make_a_cluster_of_this_machine(bench: Bench, free: None):
    (bench.folder / "train.py").write_text(SCRIPT)
    counts = ["-np", "2", "--max-np", "2"]
    ended = elasticrun(bench, "--spark", "local-cluster[2,1,512]", *counts, "python3", "train.py")
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if "RANK" in line]
    assert sorted(line.split("RANK")[1].split()[0] for line in lines) == ["0", "1"], ended.stdout


def test_a_local_master_runs_a_script_by_its_relative_path(bench: Bench, free: None):
    (bench.folder / "program").mkdir()
    (bench.folder / "program" / "train.py").write_text("import helper\n" + SCRIPT)
    (bench.folder / "program" / "helper.py").write_text("")
    ended = elasticrun(bench, "--spark", "local[2]", "-np", "2", "python3", "program/train.py")
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if "RANK" in line]
    assert sorted(line.split("RANK")[1].split()[0] for line in lines) == ["0", "1"], ended.stdout


def test_without_a_bound_as_many_slots_are_asked_for_as_are_needed(bench: Bench, free: None):
    (bench.folder / "train.py").write_text(SCRIPT)
    ended = elasticrun(bench, "--spark", bench.cluster.master, "-np", "2", "python3", "train.py")
    assert ended.returncode == 0, ended.stderr
    assert sorted(line.split("RANK")[1].split()[2] for line in ended.stdout.splitlines() if "RANK" in line) == [
        "2",
        "2",
    ]


def test_it_says_what_it_waits_for(bench: Bench, free: None):
    words = ["--spark", bench.cluster.master, "-np", "7", "--max-np", "8", "--elastic-timeout", "15s", "python3", "-V"]
    ended = elasticrun(bench, *words)
    assert ended.returncode == 3, ended.stderr
    # How many are granted by then is a matter of how quickly executors start.
    assert re.search(r"waiting for 7 slot\(s\) of Spark: \d of 8 slot\(s\) granted, \d pending", ended.stderr), (
        ended.stderr
    )


def test_a_bound_of_dynamic_allocation_below_what_is_needed_is_refused(bench: Bench, free: None):
    dynamic = {"enabled": "true", "shuffleTracking.enabled": "true", "maxExecutors": 1}
    settings = " ".join(f"--conf spark.dynamicAllocation.{key}={value}" for key, value in dynamic.items())
    ended = elasticrun(bench, "--spark", bench.cluster.master, "-np", "2", "python3", "-V", settings=settings)
    assert ended.returncode == 2, ended.stderr
    assert "num_proc 2, max_num_proc 1: expected 1 <= min_num_proc <= num_proc <= max_num_proc" in ended.stderr


def test_the_exit_code_is_that_of_the_job(bench: Bench, free: None):
    counts = ["-np", "1", "--max-np", "1"]
    ended = elasticrun(bench, "--spark", bench.cluster.master, *counts, "sh", "-c", "echo mine >&2; exit 3")
    assert ended.returncode == 1, ended.stderr
    assert "exit code 3" in ended.stderr and "mine" in ended.stderr


def test_a_program_by_path_and_modules_beside_the_script_run(bench: Bench, free: None):
    """Neither the interpreter nor a file of a shared file system is copied. The modules of the script are."""
    code = bench.folder / "code"
    for name, text in {
        "helper.py": "WORD = 'HELPED'",
        "package/__init__.py": "",
        "package/part.py": "from helper import WORD",
        "train.py": "import sys\nfrom package import part\nprint(part.WORD, *sys.argv[1:])\n" + SCRIPT,
    }.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(text)
    shared = bench.folder / "rows.txt"
    shared.write_text("row")
    (bench.folder / "conf.txt").touch()
    # A link, as the interpreter of a virtual environment usually is.
    assert os.path.isfile(sys.executable)
    command = [sys.executable, str(code / "train.py"), str(shared), "conf.txt"]
    ended = elasticrun(bench, "--spark", bench.cluster.master, "-np", "2", *command)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(f"HELPED {shared} ./conf.txt") == 2, ended.stdout


@pytest.mark.parametrize("how", ["flags", "config"])
def test_variables_named_by_env_reach_the_workers(bench: Bench, free: None, how: str):
    """The values are those of the shell, which executors do not have. Other variables of the shell stay there."""
    config = bench.folder / "elasticrun.toml"
    config.write_text('env = ["MY_NAME", "MY_TEXT=given"]' if how == "config" else "")
    flags = ["--env", "MY_NAME", "--env=MY_TEXT=given"] if how == "flags" else []
    options = ["-np", "1", "--config", str(config), *flags]
    shell = {"MY_NAME": "of the shell", "MY_TEXT": "other", "MY_OWN": "not named"}
    command = ["sh", "-c", "echo FOUND $MY_NAME, $MY_TEXT, $MY_OWN."]
    ended = elasticrun(bench, "--spark", bench.cluster.master, *options, *command, **shell)
    assert ended.returncode == 0, ended.stderr
    assert "FOUND of the shell, given, ." in ended.stdout
