"""The checks of checks/, each in jobs of several sizes: what runs in the workers stands there."""

from pathlib import Path

import pytest
from support.checks import checked, checks_of

COLLECTIVES, AUTOGRAD, OPTIMIZERS, STATES, STORES, STORES_COMPARED, PROCESS_GROUP, MESSAGES, SUBGROUPS = (
    Path(__file__).parent / "checks" / f"{name}.py"
    for name in (
        "collectives",
        "autograd",
        "optimizers",
        "states",
        "stores",
        "stores_compared",
        "process_group",
        "messages",
        "subgroups",
    )
)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("name", checks_of(COLLECTIVES))
def test_collectives(name: str, ranks: int) -> None:
    checked(COLLECTIVES, ranks).passed(name)


@pytest.mark.parametrize("name", checks_of(AUTOGRAD))
def test_autograd(name: str) -> None:
    checked(AUTOGRAD, 3).passed(name)


@pytest.mark.parametrize("name", checks_of(OPTIMIZERS))
def test_optimizers(name: str) -> None:
    checked(OPTIMIZERS, 3).passed(name)


@pytest.mark.parametrize("name", checks_of(STATES))
def test_states(name: str) -> None:
    checked(STATES, 2).passed(name)


@pytest.mark.parametrize("name", checks_of(STORES))
def test_stores(name: str) -> None:
    checked(STORES, 2).passed(name)


@pytest.mark.parametrize("name", checks_of(STORES_COMPARED))
def test_stores_are_as_those_of_torch(name: str) -> None:
    checked(STORES_COMPARED, 2).passed(name)


@pytest.mark.parametrize("backend", ["elasticrun", "gloo"])
@pytest.mark.parametrize("name", checks_of(PROCESS_GROUP))
def test_process_group(name: str, backend: str) -> None:
    checked(PROCESS_GROUP, 3, backend).passed(name)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", checks_of(MESSAGES))
def test_messages(name: str, ranks: int) -> None:
    checked(MESSAGES, ranks, "elasticrun").passed(name)


@pytest.mark.parametrize("name", checks_of(SUBGROUPS))
def test_subgroups(name: str) -> None:
    checked(SUBGROUPS, 4, "elasticrun").passed(name)
