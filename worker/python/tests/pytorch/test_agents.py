"""PyTorch's tests of its agent, with our back end in place of c10d, and in place of etcd-v2 on a real etcd."""

import contextlib
import gc
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytorch_checkout as checkout
from support.etcd import running_etcd

_cases = checkout.module("test/distributed/elastic/agent/server/test/local_elastic_agent_test.py").LocalElasticAgentTest


def run(test: Callable[[], None]) -> None:
    """Runs a test without what earlier ones have left: a fork that collected a torch store would wait for its thread for ever."""
    gc.collect()
    test()


class AgentTest(_cases):
    """The tests with c10d. The first agent serves the rendezvous."""

    @classmethod
    def setUpClass(cls) -> None:
        """Starts no etcd."""

    @classmethod
    def tearDownClass(cls) -> None:
        """Ends none."""

    def run_test_with_backend(self, backend: str, test_to_run: Callable[[], None]) -> None:
        assert backend == "c10d"
        self._endpoint = ""
        # The endpoint is that of c10d.
        super().run_test_with_backend(backend, lambda: None)
        self._backend = "elasticrun"
        run(test_to_run)


class EtcdAgentTest(_cases):
    """The tests with etcd-v2. The rendezvous is in etcd."""

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

    def run_test_with_backend(self, backend: str, test_to_run: Callable[[], None]) -> None:
        assert backend == "etcd-v2"
        self._backend, self._endpoint = "elasticrun", self._address
        run(test_to_run)


checkout.without(AgentTest, [name for name in dir(_cases) if name.startswith("test_") and "etcd" in name])
checkout.without(EtcdAgentTest, [name for name in dir(_cases) if name.startswith("test_") and "etcd_v2" not in name])
del _cases
