"""Horovod's own elastic integration scenarios, with Horovod's own training scripts, on elasticrun.

Each scenario is run for each script, also those that Horovod skips for TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import adapter
import checkout
import environment
import pytest

from elasticrun import _binary

SCENARIOS = checkout.scenarios() or ["(no checkout)"]
SCRIPTS = {
    "elastic_torch_main.py": environment.torch,
    "elastic_tensorflow2_main.py": environment.tensorflow,
    "elastic_tensorflow_keras_main.py": environment.tensorflow,
}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(("name", "env"), SCRIPTS.items(), ids=SCRIPTS.keys())
def test_scenario(name: str, env: Callable[[], dict[str, str]], scenario: str, source: Path, tmp_path: Path) -> None:
    original = source / "test/integration/data" / name
    script = checkout.with_fractions(checkout.moved(original, tmp_path))
    launcher = adapter.Launcher(_binary.find(), env())
    getattr(adapter.case(scenario, script, launcher), scenario)()
