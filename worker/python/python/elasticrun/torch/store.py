"""The job's key-value store as a store of torch.distributed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Literal, TypeVar

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch._C._distributed_c10d import Store as C10dStore

from elasticrun import _native, errors, lifecycle

from . import connections

R = TypeVar("R")

#: torch's side refers to the part of a store that is its own, and calls ours as long as it lives: for good.
_alive: list[Store] = []


class Store(C10dStore):
    """Keys and values that all workers of the job share, kept by its agents: no server to start.

    For groups of torch that need one: ``init_process_group("gloo", store=...)``. Keys of a round are gone when the next
    one starts, so nobody is given the address of a dead peer.

    Args:
        timeout: longest wait for a key.
        keys: whose keys: those of the ``"job"``, which stay while it runs, or of this process's ``"round"``.

    Raises:
        ValueError: ``keys`` is neither.
        ElasticrunError: ``keys="round"``, and this process is in none.
    """

    def __init__(self, timeout: timedelta = timedelta(minutes=5), *, keys: Literal["job", "round"] = "job") -> None:
        super().__init__()
        lifecycle.require("Store")
        if keys not in ("job", "round"):
            raise ValueError(f"keys={keys!r}: those of the 'job' or of the 'round'")
        self._keys = _native.job_keys() if keys == "job" else _native.round_keys()
        self._round = _native.world().round if keys == "round" else None
        self.set_timeout(timeout)
        _alive.append(self)

    def set(self, key: str, value: str | bytes) -> None:
        """Sets a key, whether or not it is there."""
        self._meet([_bytes(value)])
        self._keys.set(key, _bytes(value))

    def get(self, key: str) -> bytes:
        """The value of a key; waits for it.

        Raises:
            DistStoreError: it did not come in time.
        """
        value = self._waited([key], self._seconds(), lambda limit: self._keys.get(key, limit))
        self._meet([value])
        return value

    def add(self, key: str, amount: int) -> int:
        """Adds to a number, which is 0 before, and gives the sum."""
        return self._keys.add(key, int(amount))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Sets a key if its value is ``expected`` (a missing one counts as empty); gives what it is then."""
        current = self._keys.compare_set(key, _bytes(expected), _bytes(desired))
        # As torch's own stores: a key that is not there is what was expected of it.
        return _bytes(expected) if current is None else current

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all the keys are there."""
        return self._keys.check(list(keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Waits until all the keys are there.

        Raises:
            DistStoreError: they did not come in time.
        """
        seconds = self._seconds() if timeout is None else timeout.total_seconds()
        self._waited(keys, seconds, lambda limit: self._keys.wait(list(keys), limit))

    def delete_key(self, key: str) -> bool:
        """Removes a key; whether it was there."""
        return self._keys.delete(key)

    def num_keys(self) -> int:
        """How many keys there are."""
        return self._keys.num_keys("")

    def append(self, key: str, value: str | bytes) -> None:
        """Appends to the value of a key, which is empty before."""
        self._keys.append(key, _bytes(value))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of the keys; waits for all of them.

        Raises:
            DistStoreError: they did not come in time.
        """
        wanted = list(keys)
        values = self._waited(wanted, self._seconds(), lambda limit: self._keys.multi_get(wanted, limit))
        self._meet(values)
        return values

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Sets several keys."""
        raw = [_bytes(value) for value in values]
        self._meet(raw)
        self._keys.multi_set(list(zip(keys, raw, strict=True)))

    def has_extended_api(self) -> bool:
        """True: append, multi_get and multi_set are there."""
        return True

    def clone(self) -> Store:
        """This store: threads may share it."""
        return self

    # The names that torch's own code calls these two by.
    deleteKey = delete_key
    getNumKeys = num_keys

    def _meet(self, values: Sequence[bytes]) -> None:
        """A group that meets in the keys of a round leaves its addresses there."""
        if self._round is not None:
            for value in values:
                connections.met(self._round, value)

    def _seconds(self) -> float:
        # The stubs of torch do not have the property.
        timeout: timedelta = getattr(self, "timeout")  # noqa: B009
        return timeout.total_seconds()

    def _waited(self, keys: Sequence[str], seconds: float, call: Callable[[float], R]) -> R:
        try:
            return call(seconds)
        except errors.StoreTimeout as error:
            wanted = ", ".join(keys)
            raise dist.DistStoreError(
                f"waited {seconds:g} s for the key(s) {wanted}: see whether who sets them is alive"
            ) from error


def round_store(world: _native.Standing, name: str) -> C10dStore:
    """The keys of the current round, ``world``'s, below ``name``."""
    return PrefixStore(name, _of_round(world.epoch, world.round))


@functools.lru_cache(maxsize=1)
def _of_round(epoch: int, round: int) -> Store:
    return Store(keys="round")


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
