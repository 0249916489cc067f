"""elasticrun.torch.Store, as torch's own stores are used and by torch itself."""

import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import elasticrun.torch as hvd

SHORT = timedelta(milliseconds=300)


def check_set_get_and_wait(rank, size):
    store = hvd.Store()
    store.set(f"a{rank}", f"value of {rank}")
    store.wait([f"a{other}" for other in range(size)])
    assert [store.get(f"a{other}") for other in range(size)] == [f"value of {other}".encode() for other in range(size)]
    assert store.check(["a0"]) and not store.check(["a0", "nothing"])
    hvd.barrier()


def check_bytes_are_kept(rank, size):
    store = hvd.Store()
    data = bytes(range(256)) * 100
    store.set(f"bytes{rank}", data)
    assert store.get(f"bytes{rank}") == data


def check_add_counts_all_ranks(rank, size):
    store = hvd.Store()
    for _ in range(10):
        store.add("count", rank + 1)
    hvd.barrier()
    assert store.add("count", 0) == 10 * size * (size + 1) // 2
    assert store.get("count") == str(10 * size * (size + 1) // 2).encode()
    hvd.barrier()


def check_compare_set_has_one_winner(rank, size):
    store = hvd.Store()
    now = store.compare_set("winner", "", str(rank))
    winners = hvd.allgather_object(now)
    assert len(set(winners)) == 1
    assert store.compare_set("winner", "nobody", "me") == winners[0]


def check_delete_and_count(rank, size):
    store = dist.PrefixStore(f"own{rank}", hvd.Store())
    store.set("one", "1")
    hvd.barrier()
    before = hvd.Store().num_keys()
    hvd.barrier()
    assert store.delete_key("one") and not store.delete_key("one")
    hvd.barrier()
    assert hvd.Store().num_keys() == before - size
    hvd.barrier()


def check_append_and_many(rank, size):
    store = hvd.Store()
    store.append(f"log{rank}", "a")
    store.append(f"log{rank}", "bc")
    assert store.get(f"log{rank}") == b"abc"
    store.multi_set([f"x{rank}", f"y{rank}"], ["1", "2"])
    assert store.multi_get([f"x{rank}", f"y{rank}"]) == [b"1", b"2"]
    assert store.has_extended_api()


def check_what_does_not_come_is_named(rank, size):
    store = hvd.Store(timeout=SHORT)
    # The words of TCPStore.
    with pytest.raises(dist.DistStoreError, match=r"wait timeout after 300ms, keys: /never\b"):
        store.get("never")
    with pytest.raises(dist.DistStoreError, match="never"):
        hvd.Store().wait(["never"], SHORT)
    with pytest.raises(ValueError, match="'neither'"):
        hvd.Store(keys="neither")


def check_torch_uses_it(rank, size):
    store = hvd.Store(keys="round")
    copy = dist.PrefixStore("torch", store).clone()
    copy.set(f"key{rank}", "v")
    assert store.get(f"torch/key{rank}") == b"v"
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor[0] == size
    group = dist.new_group(list(range(size)))
    dist.barrier(group)
    dist.destroy_process_group()


def check_torchs_own_test_of_python_stores(rank, size):
    if rank == 0:
        dist._test_python_store(hvd.Store())
    hvd.barrier()


def check_stores_are_made_while_another_thread_commits(rank, size):
    state = hvd.elastic.ObjectState(data=torch.zeros(2_000_000))
    over, failures = threading.Event(), []

    def commit():
        try:
            while not over.is_set():
                state.commit()
        except BaseException as error:
            failures.append(error)

    beside = threading.Thread(target=commit)
    beside.start()
    try:
        for turn in range(100):
            hvd.Store().set(f"beside{rank}", str(turn))
    finally:
        over.set()
        beside.join()
    assert not failures, failures
