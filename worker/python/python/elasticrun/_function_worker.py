"""The program of a worker of ``elasticrun.run``: it fetches the function, calls it and returns the result."""

from __future__ import annotations

import os
import pickle
import sys

from . import _authenticated_rpc, _native, lifecycle
from ._function_call import VARIABLE, Address, Call, Result, pickled

__all__ = ["main"]


def main() -> None:
    """Fetches one call, makes it and returns its result."""
    address = Address.decode(os.environ.pop(VARIABLE))
    key = _native.call_key()
    call: Call = pickle.loads(_authenticated_rpc.request(address.hosts, address.port, key, b""))
    sys.path += [entry for entry in call.path if entry not in sys.path]
    if call.prepare is not None:
        from multiprocessing import spawn

        spawn.prepare(call.prepare)
    function, args, kwargs = pickle.loads(call.call)
    value = function(*args, **kwargs)
    try:
        result = pickled(value, call.by_value)
    except Exception as error:
        name = getattr(function, "__qualname__", function)
        sys.exit(f"elasticrun.run: what {name} returned cannot be pickled: {error}")
    round, rank, size = _membership()
    message = pickle.dumps(Result(round, rank, size, result))
    _authenticated_rpc.request(address.hosts, address.port, key, message)


def _membership() -> tuple[int, int, int]:
    if lifecycle.is_initialized():
        world = lifecycle.world()
        return world.round, world.rank, world.size
    return 0, int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
