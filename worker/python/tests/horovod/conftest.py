"""Makes the modules beside the tests importable, and names why tests are skipped."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import checkout


@pytest.fixture
def source() -> Path:
    """The checkout of Horovod."""
    root = checkout.source()
    if root is None:
        pytest.skip(checkout.REASON)
    return root
