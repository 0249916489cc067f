"""elasticrun.torch.Store gives the same answers as torch's own stores, which stand beside it as the oracle.

A check does the same calls with both. The store of the oracle is a TCPStore of rank 0, unless a value is too large for it.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

import elasticrun.torch as hvd

SHORT = timedelta(milliseconds=200)
LONG = timedelta(minutes=2)
#: More than any message of the store.
LARGE = 64 << 20

QueueEmptyError = getattr(dist, "QueueEmptyError", dist.DistStoreError)


@functools.cache
def tcp_store() -> dist.Store:
    """torch's own store, the same one on all ranks."""

    def store(port: int) -> dist.TCPStore:
        return dist.TCPStore("127.0.0.1", port, is_master=hvd.rank() == 0, timeout=LONG, wait_for_workers=False)

    if hvd.rank() == 0:
        store_of_all = store(0)
        hvd.broadcast_object(store_of_all.port)
    else:
        store_of_all = store(hvd.broadcast_object(None))
    return store_of_all


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or the class of torch's errors and the first line of its message."""
    try:
        return call()
    except QueueEmptyError as error:
        return type(error).__name__, str(error).splitlines()[0]
    except dist.DistStoreError as error:
        return "DistStoreError", str(error).splitlines()[0].partition(";")[0]


def same(script: Callable[[Any], list[Callable[[], Any]]]) -> list[Any]:
    """Does the calls of a script with both stores, and returns the outcomes, which must be equal."""
    ours = [outcome(call) for call in script(hvd.Store(timeout=LONG))]
    theirs = [outcome(call) for call in script(tcp_store())]
    assert ours == theirs
    return ours


def once(store: Any, timeout: timedelta, call: Callable[[], Any]) -> Any:
    """A call while the store has another timeout."""
    before = store.timeout
    store.set_timeout(timeout)
    try:
        return call()
    finally:
        store.set_timeout(before)


def digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def check_values(rank, size):
    own = f"values/{rank}/"
    everything = bytes(range(256))
    seen = same(
        lambda store: [
            lambda: store.set(own + "text", "one"),
            lambda: store.get(own + "text"),
            lambda: store.set(own + "text", "two"),
            lambda: store.get(own + "text"),
            lambda: store.set(own + "bytes", everything),
            lambda: store.get(own + "bytes"),
            lambda: store.set(own + "none", ""),
            lambda: store.get(own + "none"),
            lambda: store.set(own + "ключ 鍵", "žluťoučký"),
            lambda: store.get(own + "ключ 鍵"),
        ]
    )
    assert seen[5] == everything and seen[9] == "žluťoučký".encode()


def check_values_of_another_rank(rank, size):
    other = (rank + 1) % size
    same(
        lambda store: [
            lambda: store.set(f"another/{rank}", f"from {rank}"),
            lambda: store.wait([f"another/{n}" for n in range(size)], LONG),
            lambda: store.get(f"another/{other}"),
            lambda: store.check([f"another/{n}" for n in range(size)]),
        ]
    )


def check_compare_set(rank, size):
    key = f"compared/{rank}"
    seen = same(
        lambda store: [
            lambda: store.compare_set(key, "something", "1"),
            lambda: store.check([key]),
            lambda: store.compare_set(key, "", "1"),
            lambda: store.compare_set(key, "", "2"),
            lambda: store.compare_set(key, "1", "3"),
            lambda: store.get(key),
        ]
    )
    assert seen == [b"something", False, b"1", b"1", b"3", b"3"]


def check_numbers(rank, size):
    key = f"number/{rank}"
    same(
        lambda store: [
            lambda: store.add(key, 5),
            lambda: store.add(key, -7),
            lambda: store.get(key),
            lambda: store.set(key, "40"),
            lambda: store.add(key, 2),
            lambda: store.add(key, 1 << 40),
        ]
    )
    for store in (hvd.Store(), tcp_store()):
        store.add("number/of all", rank + 1)
    hvd.barrier()
    same(lambda store: [lambda: store.add("number/of all", 0)])


def check_deletion_and_number_of_keys(rank, size):
    if rank == 0:
        counts = []
        for store in (hvd.Store(), tcp_store()):
            before = store.num_keys()
            steps = [
                lambda store=store: store.set("deleted/a", "1"),
                lambda store=store: store.add("deleted/b", 1),
                lambda store=store: store.append("deleted/c", "x"),
                lambda store=store: store.queue_push("deleted/queue", "x"),
                lambda store=store: store.delete_key("deleted/a"),
                lambda store=store: store.delete_key("deleted/a"),
                lambda store=store: store.delete_key("deleted/queue"),
                lambda store=store: store.check(["deleted/queue"]),
            ]
            counts.append([(step(), store.num_keys() - before) for step in steps])
        assert counts[0] == counts[1]
    hvd.barrier()


def check_timeouts(rank, size):
    seen = same(
        lambda store: [
            lambda: store.wait(["never"], SHORT),
            lambda: store.wait(["never", "never either"], SHORT),
            lambda: once(store, SHORT, lambda: store.get("never")),
            lambda: once(store, SHORT, lambda: store.multi_get(["never", "ever"])),
            lambda: once(store, SHORT, lambda: store.queue_pop("never")),
            lambda: store.check(["never"]),
            lambda: store.set(f"after a timeout {rank}", "1"),
        ]
    )
    assert seen[0] == ("DistStoreError", "wait timeout after 200ms, keys: /never")


def check_refusals_are_errors_of_torch_and_of_elasticrun(rank, size):
    store = hvd.Store()
    store.set(f"text {rank}", "no number")
    for kind in (dist.DistStoreError, hvd_errors().StoreError, RuntimeError):
        with pytest.raises(kind, match="no whole number"):
            store.add(f"text {rank}", 1)
    with pytest.raises(dist.DistStoreError, match="2 keys and 1 values"):
        store.multi_set(["a", "b"], ["1"])


def hvd_errors() -> Any:
    import elasticrun.errors

    return elasticrun.errors


def check_append_and_many(rank, size):
    own = f"many/{rank}/"
    same(
        lambda store: [
            lambda: store.append(own + "log", "a"),
            lambda: store.append(own + "log", "bc"),
            lambda: store.get(own + "log"),
            lambda: store.multi_set([own + "x", own + "y"], ["1", b"\xff\x00"]),
            lambda: store.multi_get([own + "y", own + "log", own + "x"]),
            lambda: store.multi_get([]),
        ]
    )


def check_queues(rank, size):
    own = f"queues/{rank}/"
    seen = same(
        lambda store: [
            lambda: store.queue_len(own + "q"),
            lambda: store.queue_pop(own + "q", False),
            lambda: store.queue_push(own + "q", "1"),
            lambda: store.queue_push(own + "q", b"\xff\x00"),
            lambda: store.queue_push(own + "q", ""),
            lambda: store.queue_len(own + "q"),
            lambda: store.check([own + "q"]),
            lambda: store.wait([own + "q"], SHORT),
            lambda: store.queue_pop(own + "q"),
            lambda: store.queue_pop(own + "q", False),
            lambda: store.queue_pop(own + "q", True),
            lambda: store.check([own + "q"]),
            lambda: store.queue_pop(own + "q", False),
            # A value of the same key.
            lambda: store.set(own + "q", "value"),
            lambda: store.queue_len(own + "q"),
            lambda: store.queue_push(own + "q", "element"),
            lambda: store.get(own + "q"),
            lambda: store.delete_key(own + "q"),
            lambda: store.queue_len(own + "q"),
            lambda: store.queue_pop(own + "q"),
        ]
    )
    assert seen[8:11] == [b"1", b"\xff\x00", b""]
    assert seen[1] == (QueueEmptyError.__name__, "queue is empty")


def check_a_pop_waits_for_the_push_of_another_rank(rank, size):
    other = (rank + 1) % size

    def script(store: Any) -> list[Callable[[], Any]]:
        popped: list[bytes] = []
        beside = threading.Thread(target=lambda: popped.append(store.queue_pop(f"ping/{rank}")))
        return [
            beside.start if isinstance(store, hvd.Store) else lambda: None,
            lambda: store.queue_push(f"ping/{other}", f"from {rank}"),
            lambda: beside.join() or popped[0] if isinstance(store, hvd.Store) else store.queue_pop(f"ping/{rank}"),
        ]

    # A TCPStore has one connection, so a pop that waits would hold up the push of the same rank.
    assert same(script)[2] == f"from {other}".encode()


def check_a_queue_shares_out_work(rank, size):
    for number, store in enumerate((hvd.Store(), tcp_store())):
        queue = f"work/{number}"
        if rank == 0:
            for item in range(50):
                store.queue_push(queue, str(item))
            for _ in range(size):
                store.queue_push(queue, "end")
        mine = list(iter(lambda store=store, queue=queue: store.queue_pop(queue), b"end"))
        assert mine == sorted(mine, key=int)
        done = [item for items in hvd.allgather_object(mine) for item in items]
        assert sorted(done, key=int) == [str(item).encode() for item in range(50)]
        assert store.queue_len(queue) == 0
        hvd.barrier()


def check_lists_of_keys(rank, size):
    own = f"listed/{rank}/"

    def listed(store: Any) -> list[str]:
        return sorted(key for key in store.list_keys() if key.startswith(own))

    seen = same(
        lambda store: [
            lambda: store.set(own + "b", "1"),
            lambda: store.add(own + "a", 1),
            lambda: store.queue_push(own + "q", "1"),
            lambda: store.set(own + "ключ", "1"),
            lambda: listed(store),
            lambda: store.delete_key(own + "b"),
            lambda: listed(store),
        ]
    )
    assert seen[4] == [own + "a", own + "b", own + "ключ"]


def check_a_long_list_of_keys(rank, size):
    if rank == 0:
        store = hvd.Store()
        names = [f"long/{n:04}/{'x' * 1000}" for n in range(700)]
        store.multi_set(names, ["1"] * len(names))
        assert [key for key in store.list_keys() if key.startswith("long/")] == names
        for name in names:
            store.delete_key(name)
    hvd.barrier()


def check_large_values(rank, size):
    store, other = hvd.Store(timeout=LONG), (rank + 1) % size
    value = bytes([rank, 255, 0, 128]) * (LARGE // 4)
    oracle = dist.HashStore()
    for each in (store, oracle):
        each.set(f"large/{rank}", value)
    received = store.get(f"large/{other}")
    assert digest(received) == digest(bytes([other, 255, 0, 128]) * (LARGE // 4))
    hvd.barrier()
    small = value[: 5 << 20]
    for each in (store, oracle):
        each.append(f"large/{rank}", small)
        each.set(f"small/{rank}", "small")
    names = [f"large/{rank}", f"small/{rank}"]
    ours, theirs = (list(map(digest, each.multi_get(names))) for each in (store, oracle))
    assert ours == theirs
    for each in (store, oracle):
        assert each.compare_set(f"small/{rank}", "small", small) == small
        assert each.compare_set(f"small/{rank}", small, "small again") == b"small again"
        assert each.delete_key(f"large/{rank}")
    hvd.barrier()


def check_large_values_through_a_prefix_and_a_queue(rank, size):
    store, other = hvd.Store(timeout=LONG), (rank + 1) % size
    value = bytes([rank, 7, 9]) * (4 << 20)
    dist.PrefixStore("prefix", store).set(f"{rank}", value)
    expected = digest(bytes([other, 7, 9]) * (4 << 20))
    assert digest(bytes(dist.PrefixStore("prefix", store).get(f"{other}"))) == expected
    store.queue_push(f"large queue/{other}", value)
    assert digest(store.queue_pop(f"large queue/{rank}")) == expected
    hvd.barrier()
    assert store.delete_key(f"prefix/{rank}")


def check_small_calls_go_on_beside_large_values(rank, size):
    store = hvd.Store(timeout=LONG)
    failures: list[BaseException] = []

    def transfer() -> None:
        try:
            value = bytes([rank]) * (16 << 20)
            store.set(f"beside/{rank}", value)
            assert store.get(f"beside/{rank}") == value
        except BaseException as error:
            failures.append(error)

    beside = threading.Thread(target=transfer)
    beside.start()
    turns = 0
    while beside.is_alive():
        turns = store.add(f"turns/{rank}", 1)
    beside.join()
    assert not failures, failures
    # Each piece is a request of its own, and other requests take turns with them.
    assert turns > 1
    assert store.delete_key(f"beside/{rank}")
    hvd.barrier()
