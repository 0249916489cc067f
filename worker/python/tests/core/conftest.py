"""What tests of the core alone need."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Sets rank and size for what asks for nothing else, without a job."""
    from elasticrun import lifecycle

    def place(rank: int, size: int) -> None:
        monkeypatch.setattr(lifecycle, "rank", lambda: rank)
        monkeypatch.setattr(lifecycle, "size", lambda: size)

    return place
