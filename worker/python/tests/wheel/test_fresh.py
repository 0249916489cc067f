"""The README's first lines about Python, in an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest
from support.jobs import TIMEOUT

WHEEL = os.environ.get("ELASTICRUN_WHEEL")


@pytest.mark.skipif(not WHEEL, reason="ELASTICRUN_WHEEL names no wheel: worker/python/test.sh does")
def test_a_fresh_environment_trains_with_nothing_but_the_wheel(tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=True)
    binaries = tmp_path / "bin"
    clean = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    environment = {**clean, "PATH": f"{binaries}:/usr/bin:/bin"}

    def call(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    quiet = "--disable-pip-version-check"
    call(f"{binaries}/pip", "install", quiet, "--no-index", str(WHEEL))
    packages = call(f"{binaries}/pip", "list", quiet, "--format=freeze").split()
    assert {package.split("==")[0] for package in packages} <= {"elasticrun", "pip", "setuptools"}
    installed = ("man/man1/elasticrun.1", "bash-completion/completions/elasticrun", "zsh/site-functions/_elasticrun")
    for name in (*installed, "fish/vendor_completions.d/elasticrun.fish"):
        assert "elasticrun" in (tmp_path / "share" / name).read_text()
    output = call("elasticrun", "-np", "2", "python", "-m", "elasticrun.examples.digits")
    assert "succeeded" in output
    assert call("python", "-m", "elasticrun", "--version").startswith("elasticrun ")
