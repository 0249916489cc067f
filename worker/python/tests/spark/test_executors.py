"""Executors that cannot serve a slot: the job ends with the reason once all slots have failed for half a minute."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from cluster import HOSTS
from jobs import Bench

import elasticrun

#: A job that gets no worker. It has more slots than the cluster has cores, so some wait until others have failed. Its elastic
#: timeout is longer than a test waits.
PROGRAM = """
    sc = context()
    elasticrun.spark.run(
        train, (FOLDER,), num_proc=2, max_num_proc=8, env=MARK, ship_binary={ship}, elastic_timeout=3600
    )
"""
#: The end of such a job.
ENDED = "ElasticrunError: no slot of Spark can be used: "


def bare_python(bench: Bench, *folders: Path) -> dict[str, str]:
    """Variables of a program whose executors run the interpreter itself, with pyspark and ``folders`` and nothing else."""
    libraries = sorted((Path(pyspark.__file__).parent / "python/lib").glob("*.zip"))
    path = os.pathsep.join(map(str, [*libraries, *folders]))
    bare = bench.folder / "python3"
    interpreter = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    bare.write_text(f"#!/bin/sh\nPYTHONPATH='{path}' exec {interpreter} \"$@\"\n")
    bare.chmod(0o755)
    return {"PYSPARK_PYTHON": str(bare), "PYSPARK_DRIVER_PYTHON": sys.executable}


MISSING = "the Python of the executors has no elasticrun: install it there, or deliver it by --archives"


def test_a_python_without_the_package_is_named(bench: Bench, free: None):
    program = bench.program(PROGRAM.format(ship=False), **bare_python(bench))
    assert MISSING in program.until("is lost and asked for again")
    assert program.until(ENDED).endswith(MISSING)
    assert program.fail().count("is lost and asked for again") == 1


def test_slots_that_failed_are_used_once_an_executor_can_run_them(bench: Bench, free: None):
    """All slots fail at first. Then the executors find the package."""
    installed = bench.folder / "installed"
    installed.mkdir()
    program = bench.program(
        "sc = context()\n"
        "elasticrun.spark.run(train, (FOLDER,), num_proc=2, max_num_proc=2, env=MARK, elastic_timeout=3600)\n",
        **bare_python(bench, installed, Path(__file__).parent),
    )
    assert MISSING in program.until("is lost and asked for again")
    # In one step, so that no executor finds a part of the package.
    os.rename(installed, bench.folder / "empty")
    installed.symlink_to(Path(elasticrun.__file__).parents[1])
    bench.training(2)
    bench.finish()
    program.succeed()


@pytest.fixture
def noexec(bench: Bench, free: None) -> Iterator[None]:
    """The workers' directories lie on a file system from which nothing may be run."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    folders = [bench.cluster.directory / host for host in HOSTS]
    mounted = []
    try:
        for folder in folders:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec,size=512m", "tmpfs", str(folder)], check=True)
            mounted.append(folder)
        yield
    finally:
        for folder in mounted:
            # Lazily: an executor that ends may still look into it.
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_directory_from_which_nothing_may_be_run_is_named(bench: Bench, noexec: None):
    program = bench.program(PROGRAM.format(ship=True))
    said = program.until("is lost and asked for again")
    assert "cannot be run on" in said
    why = "Permission denied (is its directory mounted noexec?)"
    assert said.endswith(why)
    assert program.until(ENDED).endswith(why)
    program.fail()
