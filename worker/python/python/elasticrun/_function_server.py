"""Serves a function call to the workers of a job, and collects its results."""

from __future__ import annotations

import pickle
from typing import Any

from ._authenticated_rpc import Server
from ._function_call import VARIABLE, Address, Call, Result
from .errors import ElasticrunError

__all__ = ["FunctionServer"]


class FunctionServer:
    """Serves ``call`` while the job runs, at ``address`` of this machine (empty: all), and stores the results.

    Use it as a context manager. Workers need the variable of :meth:`environment`. Requests wait until :meth:`unlock`.
    """

    def __init__(self, call: Call, address: str) -> None:
        self._call = call
        # By round and rank, since a worker sends its result again if the answer is lost.
        self._results: dict[tuple[int, int], Result] = {}
        self._server = Server(address, self._answer)

    def __enter__(self) -> FunctionServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def environment(self, addresses: list[str]) -> dict[str, str]:
        """The environment variable with which workers find this server at one of ``addresses``."""
        return {VARIABLE: Address(addresses, self._server.port).encode()}

    def unlock(self, key: bytes) -> None:
        """Sets the key of the workers of this job. The driver passes it (``--call-fd``, driver/src/call_key.rs)."""
        self._server.unlock(key)

    def results_by_rank(self) -> list[Any]:
        """The return values of the members of the last round, by rank.

        Raises:
            ElasticrunError: a member returned no result.
        """
        return in_order(list(self._results.values()))

    def _answer(self, request: bytes) -> bytes:
        # Only workers of this job hold the key, so the pickle is trusted.
        if not request:
            return pickle.dumps(self._call)
        result: Result = pickle.loads(request)
        self._results[result.round, result.rank] = result
        return b""


def in_order(results: list[Result]) -> list[Any]:
    """The return values of the members of the newest round among ``results``, by rank.

    A process may have joined no round, because a script that it started has joined one instead. Then only its rank at the
    start is known, and the number of expected results is not. Such results are sorted by that rank.
    """
    newest = max((result.round for result in results), default=0)
    if results and newest == 0:
        return [pickle.loads(result.value) for result in sorted(results, key=lambda result: result.rank)]
    by_rank = {result.rank: result for result in results if result.round == newest}
    size = next(iter(by_rank.values())).size if by_rank else 0
    missing = [rank for rank in range(size) if rank not in by_rank]
    if missing or not by_rank:
        raise ElasticrunError(
            f"the job succeeded, but no result came from rank(s) {missing or 'at all'}: did a worker end by itself?"
        )
    return [pickle.loads(by_rank[rank].value) for rank in range(size)]
