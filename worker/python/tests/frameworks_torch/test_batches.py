"""Batches of an elastic loader: each sample once in an epoch, through any history of world sizes."""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: run `make python`")

from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from elasticrun import ElasticSampler, lifecycle
from elasticrun._loops import loaders, seeds
from elasticrun._loops.batches import ElasticBatches
from elasticrun.errors import StateError

HISTORY = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5)), max_size=5)


def members(patch, state, length, size, batch_size, drop_last):
    """The batches of all ranks of a round, as of newcomers that take over ``state``."""
    ranks = []
    for rank in range(size):
        patch.setattr(lifecycle, "rank", lambda rank=rank: rank)
        patch.setattr(lifecycle, "size", lambda: size)
        batches = ElasticBatches(ElasticSampler(length, seed=3), batch_size, drop_last)
        if state is not None:
            batches.load_state_dict(state)
            batches._position.reset()
        ranks.append(batches)
    return ranks


@given(
    length=st.integers(1, 120),
    batch_size=st.integers(1, 7),
    drop_last=st.booleans(),
    history=HISTORY,
    last=st.integers(1, 6),
)
@settings(deadline=None, max_examples=200)
def test_each_sample_comes_once(length, batch_size, drop_last, history, last):
    """Except for a last step with fewer samples than workers, where workers without one repeat one of that step."""
    used: Counter[int] = Counter()
    state, done = None, 0
    with pytest.MonkeyPatch.context() as patch:
        for size, steps in [*history, (last, None)]:
            ranks = members(patch, state, length, size, batch_size, drop_last)
            assert {len(one) for one in ranks} == {done + ranks[0].remaining}
            given_batches = [list(one) for one in ranks]
            assert {len(one) for one in given_batches} == {ranks[0].remaining}
            count = ranks[0].remaining if steps is None else min(steps, ranks[0].remaining)
            for step in range(count):
                of_step = [one[step] for one in given_batches]
                assert all(1 <= len(one) <= batch_size for one in of_step)
                samples = Counter(sample for one in of_step for sample in one)
                if max(samples.values()) > 1:
                    assert len(samples) < size and not drop_last
                    assert all(len(one) == 1 for one in of_step)
                used.update(set(samples))
            for one in ranks:
                one.advance(count)
            done += count
            state = ranks[-1].state_dict()
            assert state["done"] == done
            if ranks[0].remaining == 0:
                break
    assert set(used.values()) <= {1}
    left = length - len(used)
    assert left == 0 if not drop_last else left < batch_size * size


def test_a_loader_reads_ahead_without_moving_the_position(monkeypatch):
    (batches,) = members(monkeypatch, None, 10, 1, 2, False)
    ahead = iter(batches)
    first, second = next(ahead), next(ahead)
    assert list(batches)[:2] == [first, second] and batches.done == 0
    batches.advance()
    assert next(iter(batches)) == second and len(batches) == 5 and batches.remaining == 4
    batches.go_to(1)
    assert (batches.epoch, batches.done, batches.remaining) == (1, 0, 5)


def test_numbers_depend_on_the_place_only():
    def numbers():
        return torch.rand(3).tolist()

    seeds.plant(17, "step", 4, 0)
    first = numbers()
    seeds.plant(17, "step", 4, 1)
    assert numbers() != first
    seeds.plant(17, "step", 4, 0)
    assert numbers() == first


DATA = TensorDataset(torch.arange(12))


class Endless(IterableDataset):
    def __iter__(self):
        return iter(range(3))


@pytest.mark.parametrize(
    "loader, shuffle",
    [
        (DataLoader(DATA, 4), False),
        (DataLoader(DATA, 4, shuffle=True), True),
        (DataLoader(DATA, 4, sampler=DistributedSampler(DATA, 2, 0)), True),
        (DataLoader(DATA, 4, sampler=DistributedSampler(DATA, 2, 0, shuffle=False)), False),
        (DataLoader(DATA, 4, sampler=SequentialSampler(DATA), drop_last=True), False),
        (DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 4, False)), True),
    ],
)
def test_the_order_of_a_loader_is_read(loader, shuffle):
    order = loaders.order_of(loader)
    assert (order.samples, order.shuffle, order.batch_size) == (12, shuffle, 4)
    assert order.drop_last == loader.batch_sampler.drop_last


class OddBatches(BatchSampler):
    pass


@pytest.mark.parametrize(
    "loader, what",
    [
        ([1, 2], "a list"),
        (DataLoader(Endless(), 4), "an IterableDataset"),
        (DataLoader(DATA, batch_size=None), "a DataLoader without a batch_size"),
        (DataLoader(DATA, batch_sampler=OddBatches(SequentialSampler(DATA), 4, False)), "the batch sampler OddBatches"),
        (DataLoader(DATA, 4, sampler=RandomSampler(DATA, replacement=True)), "does not visit each sample once"),
        (DataLoader(DATA, 4, sampler=torch.utils.data.SubsetRandomSampler([1, 2])), "the sampler SubsetRandomSampler"),
    ],
)
def test_data_without_a_position_is_refused(loader, what):
    with pytest.raises(StateError, match=what) as refused:
        loaders.order_of(loader)
    assert "elastic training needs a DataLoader whose data set has a length" in str(refused.value)
