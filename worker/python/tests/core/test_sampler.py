"""The sampler: each index exactly once, through any history of world sizes."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticrun import ElasticSampler, errors

HISTORY = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 20), st.integers(0, 4), st.booleans(), st.booleans()),
    min_size=1,
    max_size=12,
)


@pytest.fixture(autouse=True)
def alone(world):
    world(0, 1)


def members(world, state, length, size, **how):
    """The samplers of all ranks of a round, as newcomers that take over ``state``."""
    samplers = []
    for rank in range(size):
        world(rank, size)
        sampler = ElasticSampler(length, **how)
        sampler.load_state_dict(state)
        samplers.append(sampler)
    return samplers


@pytest.mark.parametrize("padding", [True, False])
@given(length=st.integers(0, 300), seed=st.integers(-5, 2**70), shuffle=st.booleans(), history=HISTORY)
@settings(deadline=None, max_examples=150)
def test_loaders_use_each_index_once(padding, length, seed, shuffle, history):
    with pytest.MonkeyPatch.context() as patch:
        _loaders_use_each_index_once(patch, padding, length, seed, shuffle, history)


def _loaders_use_each_index_once(patch, padding, length, seed, shuffle, history):
    from elasticrun import lifecycle

    def world(rank, size):
        patch.setattr(lifecycle, "rank", lambda: rank)
        patch.setattr(lifecycle, "size", lambda: size)

    how = {"seed": seed, "shuffle": shuffle, "padding": padding}
    world(0, 1)
    state = ElasticSampler(length, **how).state_dict()
    used = Counter()
    padded = 0
    # The last entry goes on to the end of the epoch.
    for size, batch_size, batches, lost, by_indices in [
        *history,
        (*history[0][:2], None, False, True),
    ]:
        samplers = members(world, state, length, size, **how)
        loaders = [list(sampler) for sampler in samplers]
        assert [len(loader) for loader in loaders] == [len(sampler) for sampler in samplers]
        if padding:
            assert len({len(loader) for loader in loaders}) == 1
        else:
            assert max(map(len, loaders)) - min(map(len, loaders)) <= 1
        steps = -(-max(map(len, loaders)) // batch_size)
        if batches is not None:
            steps = min(steps, batches)
        left = length - state["position"]
        for step in range(steps):
            for rank, (sampler, loader) in enumerate(zip(samplers, loaders, strict=True)):
                own = loader[step * batch_size : (step + 1) * batch_size]
                assert own == sampler.get_indices(step, batch_size)
                if by_indices and padding:
                    sampler.record_indices(own)
                else:
                    # The index has no effect, so this one is wrong.
                    sampler.record_batch(step + 1000, batch_size)
                if not lost:
                    # Beyond the last sample there are only repeats, to fill up.
                    for turn in range(len(own)):
                        place = (step * batch_size + turn) * size + rank
                        if place < left:
                            used[own[turn]] += 1
                        else:
                            padded += 1
        if not lost:
            if steps:
                assert len({str(sampler.state_dict()) for sampler in samplers}) == 1
                state = samplers[0].state_dict()
                assert set(samplers[0].processed_indices) <= set(used)
            assert len(used) == state["position"]
    assert used == Counter(range(length))
    # Only the round that comes to the end of the epoch repeats samples.
    assert padded < max(size for size, *_ in history) if padding else padded == 0


@given(length=st.integers(0, 300), seed=st.integers(0, 2**64 - 1), history=HISTORY)
@settings(deadline=None, max_examples=150)
def test_batches_use_each_index_once_in_even_shares(length, seed, history):
    from elasticrun import lifecycle

    with pytest.MonkeyPatch.context() as patch:

        def world(rank, size):
            patch.setattr(lifecycle, "rank", lambda: rank)
            patch.setattr(lifecycle, "size", lambda: size)

        world(0, 1)
        state = ElasticSampler(length, seed=seed).state_dict()
        used = Counter()
        for size, batch_size, batches, lost, _ in [*history, (*history[0][:2], None, False, False)]:
            samplers = members(world, state, length, size, seed=seed)
            iterators = [sampler.batches(batch_size) for sampler in samplers]
            step = 0
            while batches is None or step < batches:
                shares = [next(iterator, None) for iterator in iterators]
                if shares[0] is None:
                    assert shares == [None] * size
                    break
                lengths = [len(share) for share in shares]
                assert max(lengths) <= batch_size
                assert max(lengths) - min(lengths) <= 1
                assert {share.global_size for share in shares} == {sum(lengths)}
                for sampler, share in zip(samplers, shares, strict=True):
                    sampler.record(share)
                    if not lost:
                        used.update(share.indices)
                step += 1
            if not lost:
                assert len({str(sampler.state_dict()) for sampler in samplers}) == 1
                state = samplers[0].state_dict()
                assert set(used) == set(samplers[0].processed_indices)
        assert used == Counter(range(length))


def test_the_order_does_not_depend_on_the_number_of_workers(world):
    def order(size):
        samplers = members(world, ElasticSampler(100, seed=3).state_dict(), 100, size, seed=3)
        return [index for step in zip(*samplers, strict=True) for index in step]

    assert order(1) == order(4) == order(5)
    assert sorted(order(1)) == list(range(100))
    assert order(1) != list(range(100))


def test_epochs_have_orders_of_their_own():
    sampler = ElasticSampler(100)
    first = list(sampler)
    sampler.record_batch(0, 10)
    sampler.set_epoch(1)
    assert sampler.position == 0
    assert list(sampler) != first
    sampler.set_epoch(0)
    assert list(sampler) == first


def test_reset_of_100_million_samples_takes_no_time_and_no_memory(world):
    sampler = ElasticSampler(100_000_000)
    sampler.record_batch(0, 11_000_000)
    world(3, 8)
    tracemalloc.start()
    # The processor's time, since others may use it in between.
    began = time.thread_time()
    sampler.reset()
    first = next(iter(sampler))
    took = time.thread_time() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < 0.01
    assert peak < 100_000
    assert len(sampler) == (100_000_000 - 11_000_000) // 8
    assert 0 <= first < 100_000_000
    assert len(sampler.processed_indices) == 11_000_000


def test_a_loader_of_torch_takes_it(start):
    """With loading processes that are forked after init(), through a failure, to the last sample."""
    text = start.job(
        "-np 3 --min-np 2 -H localhost:3 --blacklist forever",
        """
        import os, signal
        import elasticrun as e
        from torch.utils.data import DataLoader, Dataset

        class Numbers(Dataset):
            def __len__(self):
                return 1003

            def __getitem__(self, index):
                return index, e.rank()

        e.init()
        numbers = Numbers()
        sampler = e.ElasticSampler(numbers)
        state = e.ObjectState(sampler=sampler, used=[0] * len(numbers))

        @e.elastic.run
        def train(state):
            loader = DataLoader(numbers, batch_size=16, sampler=sampler, num_workers=1)
            left = len(numbers) - sampler.position
            assert len(loader) == -(-len(sampler) // 16)
            for step, (indices, ranks) in enumerate(loader):
                assert set(ranks.tolist()) == {e.rank()}
                if e.world().round == 1 and e.rank() == 1 and step == 5:
                    os.kill(os.getpid(), signal.SIGKILL)
                # The last samples are given out twice, so that all ranks have as many.
                real = min(len(indices), -(-(left - step * 16 * e.size() - e.rank()) // e.size()))
                for used in e.allgather_object(indices.tolist()[:max(real, 0)]):
                    for index in used:
                        state.used[index] += 1
                sampler.record_batch(step, 16)
                state.commit()
            assert state.used == [1] * len(numbers), state.used
            return sampler.position

        print("POSITION", train(state))
        """,
    ).succeed()
    assert text.count("POSITION 1003") == 2


def test_iteration_goes_on_over_what_was_left_at_the_reset():
    sampler = ElasticSampler(10, shuffle=False)
    iterator = iter(sampler)
    assert [next(iterator), next(iterator)] == [0, 1]
    sampler.record_batch(0, 2)
    assert next(iterator) == 2
    assert sampler.processed_indices == {0, 1}
    assert len(sampler) == 10
    sampler.reset()
    assert list(sampler) == list(range(2, 10))
    assert sampler.num_samples == sampler.total_size == 8


def test_a_running_batch_index_skips_nothing(world):
    """A script may pass an index that it never sets back, as with Horovod."""
    world(1, 2)
    sampler = ElasticSampler(100, shuffle=False)
    batch_idx = 0
    for start in (0, 30, 60):
        sampler.reset()
        assert list(sampler) == list(range(start + 1, 100, 2))
        for _ in range(3):
            sampler.record_batch(batch_idx, 5)
            batch_idx += 1
    assert sampler.position == 90
    sampler.reset()
    sampler.record_batch(batch_idx, 4)
    assert sampler.position == 98
    # The last batch of a loader may have fewer samples than were recorded.
    sampler.record_batch(batch_idx, 4)
    assert sampler.position == 100


def test_names_of_horovod_0_28(world):
    world(1, 2)
    sampler = ElasticSampler(10, shuffle=False)
    assert sampler.processed_num == 0
    sampler.record_batch(0, 2)
    assert sampler.processed_num == sampler.position == 4
    assert sampler.remaining_indices == list(range(10))
    assert sampler.indices == list(sampler) == [1, 3, 5, 7, 9]
    sampler.reset()
    assert sampler.remaining_indices == [4, 5, 6, 7, 8, 9]
    assert sampler.indices == [5, 7, 9]
    state = sampler.state_dict()
    assert {key: state[key] for key in ("epoch", "processed_num")} == {"epoch": 0, "processed_num": 4}
    sampler.set_epoch(1)
    assert sampler.processed_num == 0


def test_remaining_indices_of_a_shuffled_epoch(world):
    world(1, 3)
    sampler = ElasticSampler(10, seed=1)
    order = sampler.remaining_indices
    assert sorted(order) == list(range(10))
    assert sampler.indices == [*order, *order[:2]][1::3]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("processed, position", [(0, 0), (4, 4), (12, 10)])
def test_the_state_of_a_sampler_of_horovod_is_loaded(processed, position):
    sampler = ElasticSampler(10, shuffle=False)
    sampler.load_state_dict({"epoch": 2, "processed_num": processed})
    assert (sampler.epoch, sampler.position) == (2, position)
    assert sampler.remaining_indices == list(range(position, 10))


@pytest.mark.filterwarnings("error")
def test_the_order_of_horovod_is_another_one():
    sampler = ElasticSampler(10)
    sampler.load_state_dict({"epoch": 2, "processed_num": 0})
    assert (sampler.epoch, sampler.position) == (2, 0)
    with pytest.warns(UserWarning, match="may repeat samples of epoch 3 and leave others out"):
        sampler.load_state_dict({"epoch": 3, "processed_num": 4})
    assert (sampler.epoch, sampler.position) == (3, 4)


def test_the_state_of_other_data_is_refused():
    state = ElasticSampler(10, seed=1).state_dict()
    for other in (
        ElasticSampler(11, seed=1),
        ElasticSampler(10, seed=2),
        ElasticSampler(10, False, 1),
    ):
        with pytest.raises(ValueError, match="the state is of a sampler with"):
            other.load_state_dict(state)
    with pytest.raises(ValueError, match="begin the epoch anew"):
        ElasticSampler(10).load_state_dict({"epoch": 1, "processed_indices": {1, 2}})


def test_wrong_records_are_refused():
    sampler = ElasticSampler(10, shuffle=False)
    with pytest.raises(ValueError, match="the next samples of this worker"):
        sampler.record_indices([1])
    sampler.record_indices([0, 1])
    sampler.record_indices([])
    with pytest.raises(ValueError, match="needs padding"):
        ElasticSampler(10, padding=False).record_indices([])
    with pytest.raises(ValueError, match="the next samples of this worker"):
        sampler.record_indices([1])
    batches = sampler.batches(3)
    batch = next(batches)
    assert list(batch) == [2, 3, 4] and batch[1] == 3 and len(batch) == 3
    sampler.record(batch)
    with pytest.raises(ValueError, match="once, and in order"):
        sampler.record(batch)
    next(batches)
    with pytest.raises(ValueError, match="before the next batch is taken"):
        next(batches)
    with pytest.raises(ValueError, match="at least 1"):
        next(sampler.batches(0))


def test_processed_indices_are_a_set():
    sampler = ElasticSampler(10, seed=5)
    assert sampler.processed_indices == set()
    sampler.record_batch(0, 4)
    processed = sampler.processed_indices
    assert processed == set(list(ElasticSampler(10, seed=5))[:4])
    assert processed | {99} == set(processed) | {99}
    assert next(iter(processed)) in processed
    assert repr(processed) == "<4 processed indices>"


def test_before_init_it_is_an_error(monkeypatch):
    monkeypatch.undo()
    with pytest.raises(errors.NotInitialized):
        ElasticSampler(10)


def test_a_seed_that_is_set_later_counts_from_the_next_epoch_on():
    sampler = ElasticSampler(100, seed=1)
    sampler.seed = 2
    sampler.set_epoch(1)
    other = ElasticSampler(100, seed=2)
    other.set_epoch(1)
    assert list(sampler) == list(other)


def test_a_batch_of_all_samples_may_be_asked_for_by_any_large_number():
    (batch,) = _recorded(ElasticSampler(10), 10**12)
    assert sorted(batch) == list(range(10))


def _recorded(sampler, size):
    for batch in sampler.batches(size):
        yield batch
        sampler.record(batch)
