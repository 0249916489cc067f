"""Serves a function call to the workers of a job, and collects its results."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

from ._authenticated_rpc import Server
from ._function_call import VARIABLE, Address, Call, Progress
from ._function_outcomes import Outcomes
from ._rpc_identity import Identity
from .errors import JobError

__all__ = ["FunctionServer"]


class FunctionServer:
    """Serves ``call`` while the job runs, at ``address`` of this machine (empty: all), and stores the results.

    Use it as a context manager, which adds to a :class:`JobError` what the workers have sent. Workers need the variable of
    :meth:`environment`. Requests wait until :meth:`unlock`.

    ``on_progress`` gets what workers send by :func:`elasticrun._function_worker.progress`. It is called on several threads, may
    get a value twice, and the worker waits for its end.
    """

    def __init__(self, call: Call, address: str, on_progress: Callable[[Any], object] | None = None) -> None:
        self._call = call
        self._on_progress = on_progress
        self._outcomes = Outcomes()
        self._lock = threading.Lock()
        self._server = Server(address, self._answer)

    def __enter__(self) -> FunctionServer:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._server.close()
        if isinstance(error, JobError):
            self._outcomes.explain(error)

    def environment(self, addresses: list[str]) -> dict[str, str]:
        """The environment variable with which workers find this server at one of ``addresses``."""
        return {VARIABLE: Address(addresses, self._server.port).encode()}

    def unlock(self, identity: Identity) -> None:
        """Sets the identity by which workers of this job recognise the server. Its driver passes it."""
        self._server.unlock(identity)

    def results_by_rank(self) -> list[Any]:
        """The return values of the members of the last round, by rank.

        Raises:
            MissingResultsError: a member returned no result, or one that cannot be read here.
        """
        return self._outcomes.by_rank()

    def _answer(self, request: bytes) -> bytes:
        # Only workers of this job get here, so the pickle is trusted.
        if not request:
            return pickle.dumps(self._call)
        message = pickle.loads(request)
        if isinstance(message, Progress):
            if self._on_progress is not None:
                self._on_progress(pickle.loads(message.value))
            return b""
        with self._lock:
            self._outcomes.add(message)
        return b""
