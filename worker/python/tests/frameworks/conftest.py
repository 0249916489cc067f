"""Jobs of frameworks, started as the core's tests start theirs."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
# For names.py.
sys.path.insert(0, str(HERE))
_spec = importlib.util.spec_from_file_location("core_conftest", HERE.parent / "core" / "conftest.py")
assert _spec is not None and _spec.loader is not None
_core = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_core)


class Starter(_core.Starter):
    """Starts the scripts of ``workers/``, too."""

    def train(self, flags: str, script: Path, *words: str, **env: str) -> Any:
        """Starts a job with ``flags`` whose workers run ``script`` with ``words``."""
        return self.command(
            str(_core._binary.find()), *flags.split(), sys.executable, str(script), *words, **env
        )

    @staticmethod
    def python(text: str) -> list[str]:
        """The command that runs ``text``."""
        return [sys.executable, "-c", text]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(tmp_path)
    yield starter
    starter.stop()


# TensorFlow and JAX would take all processors, in each worker.
os.environ.update(
    TF_CPP_MIN_LOG_LEVEL="3",
    TF_NUM_INTRAOP_THREADS="1",
    TF_NUM_INTEROP_THREADS="2",
    XLA_FLAGS="--xla_cpu_multi_thread_eigen=false",
    OMP_NUM_THREADS="1",
)
#: Seconds: importing TensorFlow in several workers at once takes most of a minute on a busy machine.
_core.PATIENCE = 300.0


@pytest.fixture(scope="session")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """Runs all checks of a module in one job, once, and fails unless the named one passed on all ranks."""
    jobs: dict[tuple[object, ...], tuple[str, list[dict[str, str]]]] = {}

    def passed(module: str, name: str, ranks: int, **env: str) -> None:
        key = (module, ranks, *sorted(env.items()))
        if key not in jobs:
            folder = tmp_path_factory.mktemp(module)
            starter = Starter(folder)
            try:
                job = starter.command(
                    str(_core._binary.find()), "-np", str(ranks),
                    sys.executable, str(HERE / "run_checks.py"), module, str(folder),
                    **env,
                )  # fmt: skip
                job.end()
            finally:
                starter.stop()
            reports = [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]
            jobs[key] = job.text, reports
        output, reports = jobs[key]
        assert len(reports) == ranks, output
        for rank, report in enumerate(reports):
            outcome = report.get(name, "it was not run")
            assert outcome == "passed", f"rank {rank}: {outcome}\n{output}"

    return passed
