"""Horovod's elastic scenarios, run by elasticrun: the launcher is replaced, and nothing else.

A scenario patches constants of Horovod's driver, calls `horovodrun` in process with the words of a command line, and
looks at the log that rank 0 wrote, or expects an error with Horovod's message. The adapter gives the same words to
our program, the patched constants as options, and turns our exit code into that error.
"""

from __future__ import annotations

import subprocess
import sys
import unittest
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import checkout

#: What a job may take, in seconds: on two cores eight workers take long to import torch or TensorFlow.
LIMIT = 180
#: Seconds that a script waits for a notification of hosts. Its default of 3 is too short here: elasticrun notifies workers when the
#: new ones have started, and lets them train until then. Horovod notifies them when it finds the hosts.
DISCOVERY_WAIT = 90


@dataclass
class Launcher:
    """Starts elasticrun in place of horovodrun."""

    program: Path
    #: The environment of the job.
    env: dict[str, str]

    def run(self, words: list[str]) -> tuple[int, str]:
        """Runs a job, and returns its exit code and what it printed; stops it after LIMIT."""
        job = subprocess.Popen(
            [str(self.program), *words],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            output, _ = job.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            # Told to stop, it ends its workers first.
            job.terminate()
            output, _ = job.communicate(timeout=LIMIT)
            output += f"\nadapter: the job took longer than {LIMIT} s"
        print(output)
        return job.returncode, output


def words_of(argv: list[str], driver: ModuleType) -> list[str]:
    """The command line of elasticrun for one of horovodrun.

    The same words, what a scenario patched in Horovod's `driver`, and three habits of horovodrun that are not
    ours: a failed host is never taken back, all slots of fixed hosts are used, however few -np asks for, and a round
    waits for the workers of all slots. The script gets more time to wait for hosts.
    """
    ours = ["--discovery-interval", f"{driver.DISCOVER_HOSTS_FREQUENCY_SECS * 1000:.0f}ms"]
    ours += ["--elastic-timeout", f"{driver.ELASTIC_TIMEOUT_SECS}s"]
    ours += ["--last-call", f"{DISCOVERY_WAIT}s"]
    if "--blacklist-cooldown-range" not in argv:
        ours += ["--blacklist", "forever"]
    if "-H" in argv and not {"--max-np", "--max-num-proc"} & set(argv):
        hosts = argv[argv.index("-H") + 1].split(",")
        ours += ["--max-np", str(sum(int(host.rpartition(":")[2]) for host in hosts))]
    return [*ours, *argv, "--discovery-wait", str(DISCOVERY_WAIT)]


def error_of(exit_code: int, argv: list[str], constants: ModuleType) -> RuntimeError:
    """Horovod's error for our exit code."""
    if exit_code == 4:
        limit = argv[argv.index("--reset-limit") + 1]
        return RuntimeError(constants.RESET_LIMIT_EXCEEDED_MESSAGE.format(limit))
    if exit_code in (1, 3):
        return RuntimeError(
            "Horovod detected that one or more processes exited with non-zero status "
            f"(elasticrun: exit code {exit_code})"
        )
    return RuntimeError(f"elasticrun ended with {exit_code}, which no scenario expects")


def case(scenario: str, script: Path, launcher: Launcher) -> unittest.TestCase:
    """A scenario of Horovod as a test case: `getattr(case, scenario)()` runs it."""
    common = checkout.elastic_common()
    from horovod.runner.elastic import constants, driver  # type: ignore[import-not-found]

    def run_elastic(_: object) -> None:
        argv = sys.argv[1:]
        exit_code, output = launcher.run(words_of(argv, driver))
        # Whatever a scenario has go wrong, it has it go wrong later.
        assert "epoch 0 batch 0" in output, f"elasticrun ended with {exit_code}, and nothing was trained"
        if exit_code != 0:
            raise error_of(exit_code, argv, constants)

    common._run_elastic = run_elastic

    class Case(common.BaseElasticTests, unittest.TestCase):  # type: ignore[name-defined, misc]
        def _run(self, *args: Any, **kwargs: Any) -> Any:
            # A revision between 0.23 and 0.24 renamed the parameter, but not all of its callers.
            if "np" in kwargs and "num_proc" in common.BaseElasticTests._run.__code__.co_varnames:
                kwargs["num_proc"] = kwargs.pop("np")
            return super()._run(*args, **kwargs)

    return Case(str(script), scenario)
