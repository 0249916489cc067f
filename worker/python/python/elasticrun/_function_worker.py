"""The program of a worker of ``elasticrun.run``: it fetches the function, calls it and returns the result."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import traceback
from dataclasses import dataclass

from . import _authenticated_rpc, _native, lifecycle
from ._function_call import VARIABLE, Address, Call, Failure, Progress, Result, pickled
from ._rpc_identity import Identity
from .errors import Interrupted, Stopped

__all__ = ["main", "progress"]

#: Seconds for which a worker tries to reach the caller: for the function, where a wrong network must show soon, and for its
#: result, behind which stands a whole training.
_FETCH_PATIENCE = 60.0
_RESULT_PATIENCE = 600.0
#: Seconds for the caller to take an exception, which delays the end of the round.
_FAILURE_TIMEOUT = 5.0

#: The caller of the function that this process calls; None in any other process.
_caller: _Caller | None = None


def main() -> None:
    """Fetches one call, makes it and returns its result."""
    global _caller
    caller = _caller = _Caller(Address.decode(os.environ.pop(VARIABLE)), Identity.decode(_native.call_identity()))
    call: Call = pickle.loads(caller.request(b"", _FETCH_PATIENCE))
    owner = os.getpid()
    try:
        result = _returned(call)
    except Exception as error:
        if os.getpid() == owner:
            caller.report(error, call.by_value)
        raise
    round, rank, size = _membership()
    caller.request(pickle.dumps(Result(round, rank, size, result)), _RESULT_PATIENCE)


def progress(value: object) -> None:
    """Sends a value to the caller of the function, and waits until the caller has taken it. Tries once.

    Raises:
        ConnectionError: the caller is out of reach.
        RuntimeError: this process is no worker of ``elasticrun.run`` or ``elasticrun.spark.run``.
    """
    if _caller is None:
        raise RuntimeError("progress(): this process was not started by elasticrun.run")
    _caller.request(pickle.dumps(Progress(pickle.dumps(value, protocol=5))), patience=0.0)


def _returned(call: Call) -> bytes:
    """Makes a call. Returns the pickled return value."""
    sys.path += [entry for entry in call.path if entry not in sys.path]
    if call.prepare is not None:
        from multiprocessing import spawn

        spawn.prepare(call.prepare)
    function, args, kwargs = pickle.loads(call.call)
    value = function(*args, **kwargs)
    try:
        return pickled(value, call.by_value)
    except Exception as error:
        name = getattr(function, "__qualname__", function)
        raise TypeError(f"elasticrun.run: what {name} returned cannot be pickled: {error}") from error


def _membership() -> tuple[int, int, int]:
    if lifecycle.is_initialized():
        world = lifecycle.world()
        return world.round, world.rank, world.size
    return 0, int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


@dataclass(frozen=True)
class _Caller:
    """The process that called ``elasticrun.run``, and the identity of this worker."""

    address: Address
    identity: Identity

    def request(self, message: bytes, patience: float) -> bytes:
        """Sends a message and returns the answer. Repeats it for ``patience`` seconds.

        Raises:
            ConnectionError: the caller is out of reach.
        """
        return _authenticated_rpc.request(self.address.hosts, self.address.port, self.identity, message, patience)

    def report(self, error: Exception, by_value: str | None) -> None:
        """Sends an exception of the function, unless its cause is in another worker or in the job. Tries once."""
        if isinstance(error, (Interrupted, Stopped)):
            return
        try:
            data = pickled(error, by_value)
        except Exception:  # Of the user's class, so of any type
            data = None
        text = "".join(traceback.format_exception(error))
        round, rank, _ = _membership()
        message = pickle.dumps(Failure(round, rank, text, data))
        # Survivors learn of the failure only after this.
        with contextlib.suppress(ConnectionError):
            hosts, port = self.address.hosts, self.address.port
            _authenticated_rpc.request(hosts, port, self.identity, message, timeout=_FAILURE_TIMEOUT)
