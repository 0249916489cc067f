"""A call that workers fetch, and what they bring back."""

from __future__ import annotations

import pickle
from typing import Any

from ._call import VARIABLE, Address, Call, Result
from ._exchange import Server
from .errors import ElasticrunError

__all__ = ["Served"]


class Served:
    """Serves ``call`` while the job runs, at ``address`` of this machine (empty: all), and keeps the results.

    ``with Served(call, "") as served``: the workers' environment needs :meth:`variable`, and nothing is answered before
    :meth:`unlock`.
    """

    def __init__(self, call: Call, address: str) -> None:
        self._call = call
        self._results: list[Result] = []
        self._server = Server(address, self._answer)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def variable(self, addresses: list[str]) -> dict[str, str]:
        """The variable that leads workers here, by one of ``addresses``."""
        return {VARIABLE: Address(addresses, self._server.port).encode()}

    def unlock(self, key: bytes) -> None:
        """The key of this job's workers, as its driver tells it (``--call-fd``, driver/src/call_key.rs)."""
        self._server.unlock(key)

    def by_rank(self) -> list[Any]:
        """What the members of the last round returned.

        Raises:
            ElasticrunError: one of them brought nothing.
        """
        return in_order(self._results)

    def _answer(self, request: bytes) -> bytes:
        # Only a worker of this job holds the key, so this is a pickle of our own.
        if not request:
            return pickle.dumps(self._call)
        self._results.append(pickle.loads(request))
        return b""


def in_order(results: list[Result]) -> list[Any]:
    """What the members of the newest round among ``results`` returned, by rank.

    Of processes that were in no round themselves (a script that they started was) only the ranks at their start are known,
    and not who else should have brought something: these come in the order of those ranks.
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
