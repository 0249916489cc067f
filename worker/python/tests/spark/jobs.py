"""Jobs of tests on a cluster, run by this process or by a separate program."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import training
from cluster import HOME, TAG, TIMEOUT, Cluster, eventually
from pyspark import SparkContext
from support.jobs import Job
from training import End, Step

import elasticrun.spark


class Running:
    """A call of ``elasticrun.spark.run`` on a separate thread."""

    def __init__(self, call: Callable[[], list[End]]) -> None:
        self._call = call
        self._results: list[End] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def results(self) -> list[End]:
        """Waits for its end, which must be well."""
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive(), "the job does not end"
        if self._error is not None:
            raise self._error
        return self._results

    def is_running(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._results = self._call()
        except BaseException as error:  # Raised where it is waited for
            self._error = error


class Bench:
    """A folder for one test, jobs that write there, and what they wrote."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self._programs: list[Job] = []

    @property
    def mark(self) -> dict[str, str]:
        """Variables of workers that mark their processes."""
        return {TAG: self.cluster.tag}

    def run(self, context: SparkContext, **settings: Any) -> Running:
        """Starts a job of this process that trains."""
        settings["env"] = {**self.mark, **settings.pop("env", {})}
        kwargs = {"folder": str(self.folder), **settings.pop("kwargs", {})}
        fn = settings.pop("fn", training.train)
        return Running(lambda: elasticrun.spark.run(fn, kwargs=kwargs, spark_context=context, **settings))

    def program(self, text: str, submit: bool = False, **env: str) -> Job:
        """Starts a separate program, optionally with spark-submit.

        It has ``context(**settings)``, ``FOLDER`` and what ``training`` has.
        """
        script = self.folder / f"program{len(self._programs)}.py"
        begin = f"""
            import elasticrun.spark
            import os
            from cluster import TAG, context
            from training import *
            FOLDER = {str(self.folder)!r}
            MARK = {{TAG: os.environ[TAG]}}
        """
        script.write_text(textwrap.dedent(begin) + textwrap.dedent(text))
        environment = {**self.cluster.environment(), "SPARK_TEST_MASTER": self.cluster.master}
        starter = str(HOME / "bin/spark-submit") if submit else sys.executable
        job = Job([starter, str(script)], **{**environment, **env})
        self._programs.append(job)
        return job

    def finish(self) -> None:
        """Has all workers end at their next step."""
        (self.folder / "finish").touch()

    def steps(self) -> list[Step]:
        """All steps so far."""
        return training.read(self.folder)

    def training(self, size: int, after: float = 0.0, count: int = 3) -> list[Step]:
        """Waits until a round of ``size`` has made ``count`` steps after a time; the last step of each rank."""

        def look() -> list[Step]:
            steps = [step for step in self.steps() if step.at > after]
            newest = max((step.round for step in steps), default=0)
            of_round = [step for step in steps if step.round == newest and step.size == size]
            ranks = {step.rank: step for step in of_round}
            enough = len(ranks) == size and len(of_round) >= count * size
            return [ranks[rank] for rank in sorted(ranks)] if enough else []

        try:
            return eventually(look, f"{size} workers train")
        except AssertionError as error:
            said = "\n".join(job.text for job in self._programs)
            raise AssertionError(f"{error}\n{said}\nlast steps: {self.steps()[-8:]}") from None

    def each_step_was_done_once(self) -> None:
        """Of all processes so far: none has begun a step that it did not commit, and none has left one out."""
        steps: dict[int, list[Step]] = {}
        for step in self.steps():
            steps.setdefault(step.pid, []).append(step)
        for own in steps.values():
            assert [step.begun for step in own] == list(range(1, len(own) + 1)), own
            assert [step.step for step in own] == list(range(own[0].step, own[0].step + len(own))), own

    def stop(self) -> None:
        """Ends what runs."""
        self.finish()
        for job in self._programs:
            if job.process.poll() is None:
                os.kill(job.process.pid, signal.SIGKILL)
            job.stop()
