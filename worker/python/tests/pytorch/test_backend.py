"""PyTorch's tests of any rendezvous back end, on ours."""

from unittest import TestCase

import endpoints
import pytorch_checkout as checkout
from etcd_case import EtcdCase
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend

from elasticrun import _native
from elasticrun.torch.rendezvous import ElasticrunRendezvousBackend, create_backend
from elasticrun.torch.rendezvous.endpoint import open_endpoint

_mixin = checkout.module(f"{checkout.RENDEZVOUS}/rendezvous_backend_test.py").RendezvousBackendTestMixin


class BackendTest(TestCase, _mixin):
    _backend: RendezvousBackend

    def setUp(self) -> None:
        self._params = endpoints.parameters()
        self._backend, _ = create_backend(self._params)

    def _corrupt_state(self) -> None:
        holder = _native.RendezvousHolder(self._params.endpoint, f"torch/{self._params.run_id}", 10)
        written, _ = holder.compare_and_set(b"something else", None)
        assert written


class EtcdBackendTest(EtcdCase, BackendTest):
    def setUp(self) -> None:
        self._params = endpoints.parameters()
        self._params.endpoint = self.address
        self._backend = ElasticrunRendezvousBackend(open_endpoint(self._params), self._params.run_id)
