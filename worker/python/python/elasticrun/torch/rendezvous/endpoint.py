"""Where the nodes of a run meet."""

from __future__ import annotations

from torch.distributed.elastic.rendezvous import RendezvousParameters

from .etcd import SCHEME, EtcdEndpoint
from .serving import ServerEndpoint

#: Where the nodes of a run meet.
Endpoint = ServerEndpoint | EtcdEndpoint


def open_endpoint(params: RendezvousParameters) -> Endpoint:
    """The endpoint of ``torchrun``'s parameters.

    Raises:
        RendezvousConnectionError: see :class:`~elasticrun.torch.rendezvous.serving.ServerEndpoint`.
        ValueError: the endpoint or an option is not valid.
    """
    return EtcdEndpoint(params) if params.endpoint.startswith(SCHEME) else ServerEndpoint(params)
