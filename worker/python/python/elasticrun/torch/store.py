"""The job's key-value store as a store of torch.distributed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch._C._distributed_c10d import Store as C10dStore

from elasticrun import _native, errors, lifecycle

R = TypeVar("R")

#: torch's side refers to the part of a store that is its own, and calls ours as long as it lives: for good.
_alive: list[Store] = []


class Store(C10dStore):
    """Keys and values that all workers of the job share, kept by its agents: no server to start.

    For groups of torch that need one: ``init_process_group("gloo", store=...)``. Keys outlive rounds; put a
    round's keys under its prefix (:func:`round_store`).

    Args:
        timeout: longest wait for a key.
    """

    def __init__(self, timeout: timedelta = timedelta(minutes=5)) -> None:
        super().__init__()
        lifecycle.require("Store")
        self.set_timeout(timeout)
        _alive.append(self)

    def set(self, key: str, value: str | bytes) -> None:
        """Sets a key, whether or not it is there."""
        _native.store_set(key, _bytes(value))

    def get(self, key: str) -> bytes:
        """The value of a key; waits for it.

        Raises:
            DistStoreError: it did not come in time.
        """
        return self._waited([key], self._seconds(), lambda limit: _native.store_get(key, limit))

    def add(self, key: str, amount: int) -> int:
        """Adds to a number, which is 0 before, and gives the sum."""
        return _native.store_add(key, int(amount))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Sets a key if its value is ``expected`` (a missing one counts as empty); gives what it is then."""
        return _native.store_compare_set(key, _bytes(expected), _bytes(desired))

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all the keys are there."""
        return _native.store_check(list(keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Waits until all the keys are there.

        Raises:
            DistStoreError: they did not come in time.
        """
        seconds = self._seconds() if timeout is None else timeout.total_seconds()
        self._waited(keys, seconds, lambda limit: _native.store_wait(list(keys), limit))

    def delete_key(self, key: str) -> bool:
        """Removes a key; whether it was there."""
        return _native.store_delete(key)

    def num_keys(self) -> int:
        """How many keys there are."""
        return _native.store_num_keys("")

    def append(self, key: str, value: str | bytes) -> None:
        """Appends to the value of a key, which is empty before."""
        _native.store_append(key, _bytes(value))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of the keys; waits for all of them.

        Raises:
            DistStoreError: they did not come in time.
        """
        wanted = list(keys)
        return self._waited(
            wanted, self._seconds(), lambda limit: _native.store_multi_get(wanted, limit)
        )

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Sets several keys."""
        _native.store_multi_set(list(keys), [_bytes(value) for value in values])

    def has_extended_api(self) -> bool:
        """True: append, multi_get and multi_set are there."""
        return True

    def clone(self) -> Store:
        """This store: threads may share it."""
        return self

    # The names that torch's own code calls these two by.
    deleteKey = delete_key
    getNumKeys = num_keys

    def _seconds(self) -> float:
        # The stubs of torch do not have the property.
        timeout: timedelta = getattr(self, "timeout")
        return timeout.total_seconds()

    def _waited(self, keys: Sequence[str], seconds: float, call: Callable[[float], R]) -> R:
        try:
            return call(seconds)
        except errors.CollectiveTimeout as error:
            wanted = ", ".join(keys)
            raise dist.DistStoreError(
                f"waited {seconds:g} s for the key(s) {wanted}: see whether who sets them is alive"
            ) from error


def round_store(world: _native.Standing, name: str = "") -> C10dStore:
    """The keys of a round, apart from those of all other rounds.

    Without a store in the agent it is a server of rank 0, at the round's own address.
    """
    if not hasattr(_native, "store_set"):
        host, _, port = world.coordinator.rpartition(":")
        server = TCPStore(
            host.strip("[]"),
            int(port),
            world.size,
            is_master=world.rank == 0,
            wait_for_workers=False,
        )
        return PrefixStore(name, server)
    return PrefixStore(f"{world.prefix}/{name}".rstrip("/"), _shared())


@functools.cache
def _shared() -> Store:
    return Store()


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
