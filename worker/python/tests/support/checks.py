"""Checks: functions ``check_*(rank, size)`` that run in the workers of one job, and a test for each of them."""

from __future__ import annotations

import ast
import functools
import json
import sys
import tempfile
from pathlib import Path

from .jobs import run


def checks_of(module: Path) -> list[str]:
    """Names of the checks in a module, in order, without importing it."""
    return [
        node.name
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
    ]


class Checked:
    """What a job made of the checks of a module.

    Args:
        module: its file.
        ranks: how many workers run it.
        words: the back end of torch.distributed, if it needs one.
        env: more variables of the environment.
    """

    def __init__(self, module: Path, ranks: int, *words: str, **env: str) -> None:
        self.ranks = ranks
        script = Path(__file__).with_name("run_checks.py")
        with tempfile.TemporaryDirectory(prefix="elasticrun-test-") as folder:
            command = [sys.executable, str(script), str(module), folder, *words]
            _, self.output = run("-H", f"localhost:{ranks}", "-np", str(ranks), *command, **env)
            reports = Path(folder).glob("*.json")
            self.reports = {int(path.stem): json.loads(path.read_text()) for path in reports}

    def passed(self, name: str) -> None:
        """Fails unless the check passed on all ranks."""
        assert len(self.reports) == self.ranks, self.output
        for rank, report in sorted(self.reports.items()):
            outcome = report.get(name, "it was not run")
            assert outcome == "passed", f"rank {rank}: {outcome}\n{self.output}"


@functools.cache
def checked(module: Path, ranks: int, *words: str, **env: str) -> Checked:
    """What a job made of them: run once, looked at by a test for each check."""
    return Checked(module, ranks, *words, **env)
