"""The checks of checks/, each in jobs of several sizes: what runs in the workers stands there."""

import functools
import tempfile
from pathlib import Path

import pytest
from harness import Checked, checks_of


@functools.cache
def checked(module: str, ranks: int, *more: str) -> Checked:
    with tempfile.TemporaryDirectory() as folder:
        return Checked(module, ranks, Path(folder), *more)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("name", checks_of("collectives"))
def test_collectives(name: str, ranks: int) -> None:
    checked("collectives", ranks).passed(name)


@pytest.mark.parametrize("name", checks_of("autograd"))
def test_autograd(name: str) -> None:
    checked("autograd", 3).passed(name)


@pytest.mark.parametrize("name", checks_of("optimizers"))
def test_optimizers(name: str) -> None:
    checked("optimizers", 3).passed(name)


@pytest.mark.parametrize("name", checks_of("states"))
def test_states(name: str) -> None:
    checked("states", 2).passed(name)


@pytest.mark.parametrize("name", checks_of("stores"))
def test_stores(name: str) -> None:
    checked("stores", 2).passed(name)


@pytest.mark.parametrize("backend", ["elasticrun", "gloo"])
@pytest.mark.parametrize("name", checks_of("process_group"))
def test_process_group(name: str, backend: str) -> None:
    checked("process_group", 3, backend).passed(name)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", checks_of("messages"))
def test_messages(name: str, ranks: int) -> None:
    checked("messages", ranks, "elasticrun").passed(name)


@pytest.mark.parametrize("name", checks_of("subgroups"))
def test_subgroups(name: str) -> None:
    checked("subgroups", 4, "elasticrun").passed(name)
