"""What a worker of ``elasticrun.run`` runs: fetches the function, calls it, brings back its result."""

from __future__ import annotations

import json
import os
import pickle
import sys
from dataclasses import dataclass
from typing import Any

from . import _exchange, _native, lifecycle

__all__ = ["VARIABLE", "Address", "Call", "Result", "main"]

#: Where a worker finds its :class:`Address`. Names with ELASTICRUN_ in front are the driver's own.
VARIABLE = "_ELASTICRUN_CALL"


@dataclass(frozen=True)
class Address:
    """Where the caller listens: its addresses, any of which may be the one that a worker reaches."""

    hosts: list[str]
    port: int

    def encode(self) -> str:
        """As the value of a variable."""
        return json.dumps([self.hosts, self.port])

    @classmethod
    def decode(cls, text: str) -> Address:
        """From the value of a variable."""
        hosts, port = json.loads(text)
        return cls(hosts, port)

    def ask(self, key: bytes, request: bytes) -> bytes:
        """The caller's answer.

        Raises:
            ConnectionError: the caller cannot be reached.
        """
        return _exchange.ask(self.hosts, self.port, key, request)


@dataclass(frozen=True)
class Call:
    """A call as it travels.

    Attributes:
        path: where the caller finds modules.
        prepare: what makes the caller's main module known here, if the function is of it.
        call: pickle of function, arguments and keyword arguments.
    """

    path: list[str]
    prepare: dict[str, Any] | None
    call: bytes


@dataclass(frozen=True)
class Result:
    """What a worker brings back: the pickle of what the function returned, and who returned it."""

    round: int
    rank: int
    size: int
    value: bytes


def main() -> None:
    """Makes one call."""
    address = Address.decode(os.environ.pop(VARIABLE))
    key = _native.call_key()
    call: Call = pickle.loads(address.ask(key, b""))
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
    round, rank, size = _place()
    address.ask(key, pickle.dumps(Result(round, rank, size, pickled)))


def _place() -> tuple[int, int, int]:
    if lifecycle.is_initialized():
        world = lifecycle.world()
        return world.round, world.rank, world.size
    return 0, int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
