"""The program of a worker of ``elasticrun.run``: it fetches the function, calls it and returns the result."""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass

from . import _authenticated_rpc, _native, lifecycle
from ._function_call import VARIABLE, Address, Call, Result, pickled

__all__ = ["main"]

#: Seconds for which a worker tries to reach the caller: for the function, where a wrong network must show soon, and for its
#: result, behind which stands a whole training.
_FETCH_PATIENCE = 60.0
_RESULT_PATIENCE = 600.0


def main() -> None:
    """Fetches one call, makes it and returns its result."""
    caller = _Caller(Address.decode(os.environ.pop(VARIABLE)), _native.call_key())
    call: Call = pickle.loads(caller.request(b"", _FETCH_PATIENCE))
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
    caller.request(pickle.dumps(Result(round, rank, size, result)), _RESULT_PATIENCE)


def _membership() -> tuple[int, int, int]:
    if lifecycle.is_initialized():
        world = lifecycle.world()
        return world.round, world.rank, world.size
    return 0, int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


@dataclass(frozen=True)
class _Caller:
    """The process that called ``elasticrun.run``, and the key that proves it."""

    address: Address
    key: bytes

    def request(self, message: bytes, patience: float) -> bytes:
        """Sends a message and returns the answer. Repeats it for ``patience`` seconds.

        Raises:
            ConnectionError: the caller is out of reach.
        """
        return _authenticated_rpc.request(self.address.hosts, self.address.port, self.key, message, patience)
