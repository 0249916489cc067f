"""PyTorch's tests of its handler with several nodes, on our back end and our store."""

import endpoints
import pytorch_checkout as checkout

from elasticrun.torch.rendezvous import create_backend

_cases = checkout.module(f"{checkout.RENDEZVOUS}/dynamic_rendezvous_test.py").IntegrationTest


class DynamicRendezvousTest(_cases):
    def setUp(self) -> None:
        super().setUp()
        self._backend, self._store = create_backend(endpoints.parameters())


# So that pytest collects the class above alone.
del _cases
