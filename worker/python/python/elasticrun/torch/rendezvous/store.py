"""The keys of a run as a torch.distributed store."""

from __future__ import annotations

from datetime import timedelta

from elasticrun import _native

from ..store import KeyStore


class RendezvousStore(KeyStore):
    """Keys and values of a run, which the server of the endpoint keeps.

    It is connected at the first call. Methods raise ``torch.distributed.DistStoreError``, as torch's own stores do.

    Args:
        endpoint: host and port of the server.
        run_id: the run. Other runs have other keys.
        timeout: maximum wait for a key.
    """

    def __init__(self, endpoint: str, run_id: str, timeout: timedelta = timedelta(minutes=5)) -> None:
        super().__init__(_native.rendezvous_keys(endpoint, run_id), timeout)
