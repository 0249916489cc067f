"""The Python of the workers, and the environment that it is started in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

#: A Python that has TensorFlow and tf_keras; this one has torch.
FRAMEWORKS = "FRAMEWORKS_PYTHON"

STAND_INS = Path(__file__).parent / "stand_ins"


def torch() -> dict[str, str]:
    """The environment of a job whose scripts import torch."""
    return _environment(Path(sys.executable).parent)


def tensorflow() -> dict[str, str]:
    """The environment of a job whose scripts import TensorFlow, and get Keras 2 by `tf.keras`."""
    python = os.environ.get(FRAMEWORKS)
    if python is None:
        pytest.skip(f"{FRAMEWORKS} names no Python with TensorFlow: make test-horovod sets it")
    return {
        **_environment(Path(python).parent),
        "TF_USE_LEGACY_KERAS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def _environment(bin: Path) -> dict[str, str]:
    paths = [str(STAND_INS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PATH": f"{bin}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
    }
