"""The example of the parameter server in Python, as its text says: processes that a script starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.ports import free_port

EXAMPLE = Path(__file__).parents[4] / "examples" / "ps"


def test_two_servers_and_two_workers_learn_to_read() -> None:
    command = [EXAMPLE / "run.sh", "2", "2", sys.executable, EXAMPLE / "ps_digits.py"]
    variables = os.environ | {"DMLC_PS_ROOT_PORT": str(free_port())}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("accuracy "))
    # As the same program in Rust.
    assert float(line.split()[1]) > 0.93, line
    for rank in range(2):
        assert f"worker {rank}: 719 images, 20 epochs" in done.stdout
