"""PyTorch's tests of any store, on ours."""

from datetime import timedelta
from unittest import TestCase

import endpoints
import pytorch_checkout as checkout
import torch.distributed as dist

from elasticrun.torch.rendezvous import RendezvousStore, create_backend

_base = checkout.module("test/distributed/test_store.py").StoreTestBase


def store() -> RendezvousStore:
    """The store of a run of its own."""
    params = endpoints.parameters()
    _, store = create_backend(params)
    store.set_timeout(timedelta(seconds=300))
    return store


class StoreTest(TestCase, _base):
    def _create_store(self) -> dist.Store:
        return store()


class PrefixStoreTest(TestCase, _base):
    """Through the C++ part of torch, which calls ours."""

    def _create_store(self) -> dist.Store:
        return dist.PrefixStore("prefix", store())
