"""Key-value stores of this package as torch.distributed stores: that of a job, and that of a rendezvous."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Literal, ParamSpec, TypeVar

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch._C._distributed_c10d import Store as C10dStore

from elasticrun import _native, errors, lifecycle

from . import connections

P = ParamSpec("P")
R = TypeVar("R")

#: torch 2.7 and older lack it.
_QueueEmptyError: type[Exception] = getattr(dist, "QueueEmptyError", dist.DistStoreError)


class _StoreRefused(errors.StoreError, dist.DistStoreError):
    """A refusal of the store, for callers that expect an error of this package or of torch."""


def _with_errors_of_torch(method: Callable[P, R]) -> Callable[P, R]:
    """Raises refusals of the store as errors that torch knows too."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except errors.StoreError as error:
            raise _StoreRefused(str(error)) from error

    return call


#: torch holds a reference to the C++ part of a store only, and calls the Python part at any time, so stores live forever.
_alive: list[KeyStore] = []


class KeyStore(C10dStore):
    """Keys and values behind :class:`elasticrun._native.Keys`, with the methods of torch's stores."""

    def __init__(self, keys: _native.Keys, timeout: timedelta) -> None:
        super().__init__()
        self._keys = keys
        self.set_timeout(timeout)
        _alive.append(self)

    @_with_errors_of_torch
    def set(self, key: str, value: str | bytes) -> None:
        """Sets a key, whether or not it exists."""
        self._record_addresses([_bytes(value)])
        self._keys.set(key, _bytes(value))

    @_with_errors_of_torch
    def get(self, key: str) -> bytes:
        """The value of a key. Waits until it is set.

        Raises:
            DistStoreError: it did not come in time.
        """
        value = self._waited([key], self._seconds(), lambda limit: self._keys.get(key, limit))
        self._record_addresses([value])
        return value

    @_with_errors_of_torch
    def add(self, key: str, amount: int) -> int:
        """Adds to a number, initially 0, and returns the sum."""
        return self._keys.add(key, int(amount))

    @_with_errors_of_torch
    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Sets a key if its value is ``expected`` (a missing one counts as empty). Returns the value afterwards."""
        current = self._keys.compare_set(key, _bytes(expected), _bytes(desired))
        # Like torch's own stores: for a missing key, the expected value is returned.
        return _bytes(expected) if current is None else current

    @_with_errors_of_torch
    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are set. A key counts as set while its queue has an element."""
        return self._keys.check(list(keys))

    @_with_errors_of_torch
    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Waits until all keys are set. A key counts as set while its queue has an element.

        Raises:
            DistStoreError: they did not come in time.
        """
        seconds = self._seconds() if timeout is None else timeout.total_seconds()
        self._waited(keys, seconds, lambda limit: self._keys.wait(list(keys), limit))

    @_with_errors_of_torch
    def delete_key(self, key: str) -> bool:
        """Deletes a key. Returns whether it was set."""
        return self._keys.delete(key)

    @_with_errors_of_torch
    def num_keys(self) -> int:
        """Number of keys."""
        return self._keys.num_keys("")

    @_with_errors_of_torch
    def list_keys(self) -> list[str]:
        """The keys that have a value, in order. Keys that are set or deleted meanwhile may or may not be in the list."""
        return self._keys.list_keys("")

    @_with_errors_of_torch
    def queue_push(self, key: str, value: str | bytes) -> None:
        """Appends an element to a queue, which is independent of the value of the same key."""
        self._keys.queue_push(key, _bytes(value))

    @_with_errors_of_torch
    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Takes the first element of a queue. Waits for one if ``block``; calls that wait get elements in order of arrival.

        Raises:
            DistStoreError: none came in time.
            QueueEmptyError: the queue is empty, and ``block`` is false. DistStoreError in a torch without that class.
        """
        if block:
            return self._waited([key], self._seconds(), lambda limit: self._keys.queue_pop(key, limit))
        element = self._keys.queue_try_pop(key)
        if element is None:
            raise _QueueEmptyError("queue is empty")
        return element

    @_with_errors_of_torch
    def queue_len(self, key: str) -> int:
        """Number of elements of a queue."""
        return self._keys.queue_len(key)

    @_with_errors_of_torch
    def append(self, key: str, value: str | bytes) -> None:
        """Appends to the value of a key, which is initially empty."""
        self._keys.append(key, _bytes(value))

    @_with_errors_of_torch
    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of the keys. Waits until all are set.

        Raises:
            DistStoreError: they did not come in time.
        """
        wanted = list(keys)
        values = self._waited(wanted, self._seconds(), lambda limit: self._keys.multi_get(wanted, limit))
        self._record_addresses(values)
        return values

    @_with_errors_of_torch
    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Sets several keys."""
        if len(keys) != len(values):
            raise dist.DistStoreError(f"{len(keys)} keys and {len(values)} values: multi_set needs as many of each")
        raw = [_bytes(value) for value in values]
        self._record_addresses(raw)
        self._keys.multi_set(list(zip(keys, raw, strict=True)))

    def has_extended_api(self) -> bool:
        """True: append, multi_get and multi_set are supported."""
        return True

    def clone(self) -> KeyStore:
        """Returns this store, which threads may share."""
        return self

    # The names of these methods in torch's own code.
    deleteKey = delete_key
    getNumKeys = num_keys

    def _record_addresses(self, values: Sequence[bytes]) -> None:
        """Sees the values that are written or read. They may be addresses that a group publishes."""

    def _seconds(self) -> float:
        # torch's stubs lack the property.
        timeout: timedelta = getattr(self, "timeout")  # noqa: B009
        return timeout.total_seconds()

    def _waited(self, keys: Sequence[str], seconds: float, call: Callable[[float], R]) -> R:
        try:
            return call(seconds)
        except errors.StoreTimeout as error:
            # The words, and the slash before each key, are those of TCPStore: callers look for them.
            named = ", ".join(f"/{key}" for key in keys)
            raise dist.DistStoreError(
                f"wait timeout after {round(seconds * 1000)}ms, keys: {named}; check that the process that writes them is alive"
            ) from error


class Store(KeyStore):
    """Keys and values that all workers of the job share. The job provides the store, so no server must be started.

    Use it for torch groups that need a store: ``init_process_group("gloo", store=...)``. Keys of a round are deleted when the
    next round starts, so no worker reads the address of a dead peer.

    Args:
        timeout: maximum wait for a key.
        keys: ``"job"`` for keys that persist while the job runs, ``"round"`` for keys of the current round.

    Methods raise ``torch.distributed.DistStoreError``, as torch's own stores do: after a timeout with the text of TCPStore, and for
    what the store refuses, such as a value for which it has no room. A refusal is also a :class:`elasticrun.errors.StoreError`.

    Raises:
        ValueError: ``keys`` is neither.
        ElasticrunError: ``keys="round"``, and this process is in no round.
    """

    def __init__(self, timeout: timedelta = timedelta(minutes=5), *, keys: Literal["job", "round"] = "job") -> None:
        lifecycle.require("Store")
        if keys not in ("job", "round"):
            raise ValueError(f"keys={keys!r}: those of the 'job' or of the 'round'")
        super().__init__(_native.job_keys() if keys == "job" else _native.round_keys(), timeout)
        self._round = _native.world().round if keys == "round" else None

    def _record_addresses(self, values: Sequence[bytes]) -> None:
        """Records the addresses that a group publishes in the keys of a round."""
        if self._round is not None:
            for value in values:
                connections.record_addresses(self._round, value)


def round_store(world: _native.WorldInfo, name: str) -> C10dStore:
    """A store of the keys of the current round, ``world``, below ``name``."""
    return PrefixStore(name, _store_of_round(world.epoch, world.round))


@functools.lru_cache(maxsize=1)
def _store_of_round(epoch: int, round: int) -> Store:
    return Store(keys="round")


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
