"""PyTorch's tests of any rendezvous back end, on ours."""

import contextlib
import tempfile
from pathlib import Path
from typing import ClassVar
from unittest import TestCase

import endpoints
import pytorch_checkout as checkout
from support.etcd import running_etcd
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


class EtcdBackendTest(BackendTest):
    _etcd: ClassVar[contextlib.ExitStack]
    _address: ClassVar[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls._etcd = contextlib.ExitStack()
        folder = cls._etcd.enter_context(tempfile.TemporaryDirectory())
        cls._address = cls._etcd.enter_context(running_etcd(Path(folder))).address

    @classmethod
    def tearDownClass(cls) -> None:
        cls._etcd.close()

    def setUp(self) -> None:
        self._params = endpoints.parameters()
        self._params.endpoint = self._address
        self._backend = ElasticrunRendezvousBackend(open_endpoint(self._params), self._params.run_id)
