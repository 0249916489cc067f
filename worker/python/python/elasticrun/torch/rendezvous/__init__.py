"""A rendezvous back end for ``torchrun``: ``torchrun --rdzv-backend=elasticrun --rdzv-endpoint=HOST:PORT ... train.py``.

The node whose address the endpoint is serves the rendezvous. Each change reaches all nodes at once, so no node polls. A node
that ends by SIGTERM leaves in order, so the others go on without it at once.

:class:`ElasticrunRendezvousHandler` is what ``torchrun`` uses. :class:`ElasticrunRendezvousBackend` is for torch's own
``DynamicRendezvousHandler``, with the rules of torch.
"""

from .backend import ElasticrunRendezvousBackend, create_backend
from .handler import ElasticrunRendezvousHandler, create_handler
from .store import RendezvousStore

__all__ = [
    "ElasticrunRendezvousBackend",
    "ElasticrunRendezvousHandler",
    "RendezvousStore",
    "create_backend",
    "create_handler",
]
