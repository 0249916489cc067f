"""The wheel, in an environment that has nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from support.jobs import TIMEOUT

WHEEL = os.environ.get("ELASTICRUN_WHEEL")

#: Runs a command in the environment. Returns its output.
Call = Callable[..., str]


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with pip."""
    if not WHEEL:
        pytest.skip("ELASTICRUN_WHEEL names no wheel: worker/python/test.sh does")
    prefix = tmp_path_factory.mktemp("environment")
    venv.create(prefix, with_pip=True)
    return prefix


@pytest.fixture(scope="module")
def call(prefix: Path) -> Call:
    """Runs commands with the wheel installed."""
    clean = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    environment = {**clean, "PATH": f"{prefix}/bin:/usr/bin:/bin"}

    def call(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT, cwd=prefix)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    call(f"{prefix}/bin/pip", "install", "--disable-pip-version-check", "--no-index", str(WHEEL))
    return call


def test_a_fresh_environment_trains_with_nothing_but_the_wheel(prefix: Path, call: Call) -> None:
    """The README's first lines about Python."""
    packages = call(f"{prefix}/bin/pip", "list", "--disable-pip-version-check", "--format=freeze").split()
    assert {package.split("==")[0] for package in packages} <= {"elasticrun", "pip", "setuptools"}
    installed = ("man/man1/elasticrun.1", "bash-completion/completions/elasticrun", "zsh/site-functions/_elasticrun")
    for name in (*installed, "fish/vendor_completions.d/elasticrun.fish"):
        assert "elasticrun" in (prefix / "share" / name).read_text()
    output = call("elasticrun", "-np", "2", "python", "-m", "elasticrun.examples.digits")
    assert "succeeded" in output
    assert call("python", "-m", "elasticrun", "--version").startswith("elasticrun ")


def test_the_wheel_has_the_sdk_of_plugins(prefix: Path, call: Call) -> None:
    sdk = prefix / "share/elasticrun/plugin-sdk"
    for language in ("c", "rust"):
        call("elasticrun", "plugin", "new", f"in-{language}", "--lang", language)
    header = "elasticrun_plugin.h"
    assert (sdk / "sdk/include" / header).read_text() == (prefix / "in-c" / header).read_text()
    assert f'elasticrun-plugin-sdk = {{ path = "{sdk / "sdk"}" }}' in (prefix / "in-rust/Cargo.toml").read_text()
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("there is no cargo to read the manifests")
    for crate, needs in (("hosts", "serde"), ("sdk", "elasticrun-hosts")):
        words = [cargo, "metadata", "--no-deps", "--offline", "--format-version", "1"]
        found = subprocess.run(words, cwd=sdk / crate, capture_output=True, text=True, timeout=TIMEOUT)
        assert found.returncode == 0, found.stderr
        [package] = (p for p in json.loads(found.stdout)["packages"] if p["name"].endswith(crate))
        assert needs in {dependency["name"] for dependency in package["dependencies"]}
