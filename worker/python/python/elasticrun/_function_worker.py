"""The program of a worker of ``elasticrun.run``: it fetches the function, calls it and returns the result."""

from __future__ import annotations

import json
import os
import pickle
import sys
from dataclasses import dataclass
from typing import Any

from . import _authenticated_rpc, _native, lifecycle

__all__ = ["VARIABLE", "Address", "Call", "Result", "main"]

#: The environment variable with the :class:`Address`. Workers do not inherit variables with the prefix ELASTICRUN_.
VARIABLE = "_ELASTICRUN_CALL"


@dataclass(frozen=True)
class Address:
    """Address of the caller: several hosts, of which a worker may reach any, and one port."""

    hosts: list[str]
    port: int

    def encode(self) -> str:
        """The value of the environment variable."""
        return json.dumps([self.hosts, self.port])

    @classmethod
    def decode(cls, text: str) -> Address:
        """Parses the value of the environment variable."""
        hosts, port = json.loads(text)
        return cls(hosts, port)

    def request(self, key: bytes, request: bytes) -> bytes:
        """Sends a request to the caller and returns the answer.

        Raises:
            ConnectionError: the caller cannot be reached.
        """
        return _authenticated_rpc.request(self.hosts, self.port, key, request)


@dataclass(frozen=True)
class Call:
    """A function call, serialised for the workers.

    Attributes:
        path: the module search path of the caller.
        prepare: data of :mod:`multiprocessing` that imports the caller's main module, if the function is defined there.
        call: pickle of function, arguments and keyword arguments.
    """

    path: list[str]
    prepare: dict[str, Any] | None
    call: bytes


@dataclass(frozen=True)
class Result:
    """The pickled return value of the function, and the round, rank and size of the worker that returned it."""

    round: int
    rank: int
    size: int
    value: bytes


def main() -> None:
    """Fetches one call, makes it and returns its result."""
    address = Address.decode(os.environ.pop(VARIABLE))
    key = _native.call_key()
    call: Call = pickle.loads(address.request(key, b""))
    sys.path += [entry for entry in call.path if entry not in sys.path]
    if call.prepare is not None:
        from multiprocessing import spawn

        spawn.prepare(call.prepare)
    function, args, kwargs = pickle.loads(call.call)
    value = function(*args, **kwargs)
    try:
        pickled = pickle.dumps(value, protocol=5)
    except Exception as error:
        name = getattr(function, "__qualname__", function)
        sys.exit(f"elasticrun.run: what {name} returned cannot be pickled: {error}")
    round, rank, size = _membership()
    address.request(key, pickle.dumps(Result(round, rank, size, pickled)))


def _membership() -> tuple[int, int, int]:
    if lifecycle.is_initialized():
        world = lifecycle.world()
        return world.round, world.rank, world.size
    return 0, int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
