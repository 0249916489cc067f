"""The rendezvous back end for torch's DynamicRendezvousHandler."""

from __future__ import annotations

import zlib
from datetime import timedelta
from typing import Any

from torch.distributed.elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousParameters,
    RendezvousStateError,
)
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend

from elasticrun import errors

from .endpoint import Endpoint, open_endpoint
from .etcd import EtcdEndpoint
from .store import RendezvousStore

#: Before each state: who has written it. Behind it: four bytes of checksum.
_MAGIC = b"torch-rdzv-1:"


class ElasticrunRendezvousBackend(RendezvousBackend):
    """Holds the state of a run for torch's ``DynamicRendezvousHandler``, on the server of an endpoint or in etcd.

    Use :func:`create_backend` for one on a server. The token of a state is a number, which grows with each write.

    Args:
        endpoint: the endpoint. It has a server already, or gets one in time.
        run_id: the run.
    """

    def __init__(self, endpoint: Endpoint, run_id: str) -> None:
        if not run_id:
            raise ValueError("the run id must be a non-empty string")
        # The server ends with the process.
        self._endpoint = endpoint
        self._holder = endpoint.connect(f"torch/{run_id}")

    @property
    def name(self) -> str:
        """``elasticrun``."""
        return "elasticrun"

    def get_state(self) -> tuple[bytes, Any] | None:
        """The state and its token; None before the first write.

        Raises:
            RendezvousConnectionError: the server has ended or cannot be reached.
            RendezvousStateError: another program has written something else.
        """
        try:
            sealed, token = self._holder.read()
        except errors.RendezvousUnreachable as error:
            raise RendezvousConnectionError(str(error)) from error
        return None if sealed is None else (_unseal(sealed), token)

    def set_state(self, state: bytes, token: Any | None = None) -> tuple[bytes, Any, bool] | None:
        """Replaces the state if ``token`` is its token; without a token, if there is no state.

        Returns:
            The state and the token of now, and whether ``state`` was written. None if ``token`` is not valid and there is no
            state.

        Raises:
            RendezvousConnectionError: the server has ended or cannot be reached.
            RendezvousStateError: another program has written something else.
        """
        if token is not None and not isinstance(token, int):
            now = self.get_state()
            return None if now is None else (*now, False)
        try:
            written, (current, current_token) = self._holder.compare_and_set(_seal(state), token)
        except errors.RendezvousUnreachable as error:
            raise RendezvousConnectionError(str(error)) from error
        return None if current is None else (_unseal(current), current_token, written)


def create_backend(params: RendezvousParameters) -> tuple[ElasticrunRendezvousBackend, RendezvousStore]:
    """Creates a back end and the store beside it, for ``torch.distributed.elastic.rendezvous.dynamic_rendezvous.create_handler``.

    Args:
        params: the parameters of ``torchrun``, of which the endpoint, the run id, ``read_timeout`` and ``is_host`` are read.

    Raises:
        RendezvousConnectionError: no server answers within ``read_timeout`` seconds.
        ValueError: a parameter is not valid.
    """
    endpoint = open_endpoint(params)
    if isinstance(endpoint, EtcdEndpoint):
        raise ValueError("a cluster of etcd has no store for torch's handler: give the endpoint of a server")
    backend = ElasticrunRendezvousBackend(endpoint, params.run_id)
    store = RendezvousStore(str(endpoint), f"torch/{params.run_id}", timedelta(seconds=endpoint.read_timeout))
    return backend, store


def _seal(state: bytes) -> bytes:
    return _MAGIC + zlib.crc32(state).to_bytes(4, "big") + state


def _unseal(sealed: bytes) -> bytes:
    start = len(_MAGIC) + 4
    checksum, state = sealed[len(_MAGIC) : start], sealed[start:]
    if not sealed.startswith(_MAGIC) or checksum != zlib.crc32(state).to_bytes(4, "big"):
        raise RendezvousStateError("the state of the rendezvous is corrupt: another program writes to this run")
    return state
