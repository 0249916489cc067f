"""Values that differ between workers, and hosts without memory for the commits of their workers."""

from __future__ import annotations

import random
import re
import textwrap

import numpy as np
import pytest
import torch
from support.jobs import Starter

from elasticrun.errors import StateError
from elasticrun.torch.elastic import RandomGenerators, ShardedState
from elasticrun.torch.elastic.sharded.per_rank import PerRankValues, Place
from elasticrun.torch.elastic.sharded.room import Need, first_lacking

GB = 10**9

TRAIN = """
    import os, signal, torch
    import elasticrun.torch as er
    from elasticrun import _native
    from torch.distributed.fsdp import fully_shard

    er.init()

    def build(mesh):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(9, 5), torch.nn.Dropout(0.5))
        fully_shard(model, mesh=mesh)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    state = er.elastic.ShardedState(build, per_rank={"rng": er.elastic.RandomGenerators(seed=3)}, step=0)

    @er.elastic.run
    def train(state):
        while state.step < 6:
            if os.environ.get("DIES") and state.step == 3 and er.rank() == 1 and _native.world().round == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            draw = torch.rand(1).item()
            state.model(torch.ones(2, 9)).sum().backward()
            state.optimizer.step()
            state.optimizer.zero_grad()
            print(f"DRAW {er.rank()} of {er.size()} step {state.step}: {draw:.9f}", flush=True)
            state.step += 1
            state.commit()
        weight = state.model[0].weight.full_tensor().sum().item()
        print(f"END {weight:.9f}", flush=True)

    train(state)
"""


def draws(text: str) -> dict[tuple[str, ...], set[str]]:
    """The draws of each rank, size and step."""
    found: dict[tuple[str, ...], set[str]] = {}
    for *place, draw in re.findall(r"DRAW (\d) of (\d) step (\d): ([\d.]+)", text):
        found.setdefault(tuple(place), set()).add(draw)
    return found


def test_steps_that_are_repeated_draw_the_same_numbers(start: Starter) -> None:
    """Also in the worker that takes the place of the dead one. So dropout drops the same."""
    options = (
        "-np 3 --min-np 3 -H localhost:3 --blacklist-cooldown-range 0 0 --max-host-failures 0 --replica-group-size all"
    )
    undisturbed = start.job(options, TRAIN).succeed()
    text = start.job(options, TRAIN, DIES="1").succeed()
    assert "2 rounds" in text, text
    expected, found = draws(undisturbed), draws(text)
    assert len(expected) == 18 and len({draw for drawn in expected.values() for draw in drawn}) == 18, undisturbed
    assert found == expected, (text, undisturbed)
    ends = re.findall(r"END (-?[\d.]+)", text)
    assert len(ends) == 3 and set(ends) == set(re.findall(r"END (-?[\d.]+)", undisturbed)), text


def test_at_another_size_generators_start_anew_and_differ(start: Starter) -> None:
    text = start.job("-np 3 --min-np 2 --blacklist forever --replica-group-size all", TRAIN, DIES="1").succeed()
    found = draws(text)
    of_two = {draw for (_, size, _), drawn in found.items() if size == "2" for draw in drawn}
    of_three = {draw for (_, size, _), drawn in found.items() if size == "3" for draw in drawn}
    assert len(of_two) == 6 and of_two.isdisjoint(of_three), text


class Counter:
    """A value that counts."""

    def __init__(self) -> None:
        self.count: int | str = 0

    def state_dict(self) -> int | str:
        return self.count

    def load_state_dict(self, state: int | str) -> None:
        self.count = state

    def derive(self, seed: int) -> None:
        self.count = f"seed {seed}"


def test_a_worker_has_its_own_values_before_those_of_its_host() -> None:
    counter = Counter()
    values = PerRankValues({"counter": counter})
    place, other = Place(0, 2, 0, 1), Place(1, 2, 0, 1)
    values.restore(None, "", place)
    assert isinstance(counter.count, str)
    counter.count = 5
    saved = values.save(place)
    values.committed((1, 1, 4), saved)
    counter.count = 6
    # A copy of the same shard, of a worker with other rows.
    theirs = PerRankValues({"counter": counter})
    theirs.restore(None, "", other)
    counter.count = 7
    copy = theirs.save(other)
    values.restore(copy, "1.1.4", place)
    assert counter.count == 5
    values.restore(copy, "1.1.5", place)
    assert isinstance(counter.count, str)
    # A new worker in that place.
    new = PerRankValues({"counter": counter})
    new.restore(copy, "1.1.4", other)
    assert counter.count == 7
    new.restore(saved, "1.1.4", other)
    derived = counter.count
    new.restore(None, "1.1.4", other)
    assert counter.count == derived and isinstance(derived, str)


def test_all_generators_go_back_and_seeds_are_mixed() -> None:
    generators = RandomGenerators(seed=1)

    def drawn() -> tuple[float, float, float]:
        return torch.rand(1).item(), float(np.random.rand()), random.random()

    generators.derive(7)
    first = drawn()
    state = generators.state_dict()
    second = drawn()
    generators.load_state_dict(state)
    assert drawn() == second
    generators.derive(7)
    assert drawn() == first
    RandomGenerators(seed=2).derive(7)
    assert drawn() != first


def test_models_that_are_trained_apart_are_refused() -> None:
    with pytest.raises(StateError, match="replicas='independent': .* .LocalSGD"):
        ShardedState(lambda mesh: torch.nn.Linear(2, 2), replicas="independent")


def test_a_host_needs_memory_for_all_of_its_workers() -> None:
    needs = [Need(0, "a", 2 * GB, 5 * GB), Need(0, "a", 2 * GB, 5 * GB), Need(2, "b", 2 * GB, 3 * GB)]
    assert first_lacking(needs) is None
    why = first_lacking([*needs, Need(2, "b", 2 * GB, 3 * GB)])
    assert why is not None and why.startswith(
        "no room on b: the commits of its 2 workers need 4,000 MB more memory, and 3,000 MB are available"
    )
    # What the system does not say is no reason.
    assert first_lacking([Need(0, "a", 2 * GB, None)]) is None


def test_a_job_without_room_ends_and_says_so(start: Starter) -> None:
    patched = """
        import elasticrun._native as native
        original = native.memory_for_commits
        native.memory_for_commits = lambda *given: (original(*given)[0], 1000)
    """
    script = textwrap.dedent(patched) + textwrap.dedent(TRAIN)
    text = start.job("-np 2 --replica-group-size all", script).fail(code=1)
    assert re.search(r"StateError: no room on \S+: the commits of its 2 workers need \d+ MB more memory", text), text
