"""PyTorch's tests of its agent, with our back end in place of c10d, and in place of etcd-v2 on a real etcd."""

import gc
import multiprocessing
import signal
from collections.abc import Callable
from types import FrameType

import pytorch_checkout as checkout
from etcd_case import EtcdCase

_cases = checkout.module("test/distributed/elastic/agent/server/test/local_elastic_agent_test.py").LocalElasticAgentTest


#: Longer than any test takes, in seconds.
LIMIT = 300


def run(test: Callable[[], None]) -> None:
    """Runs a test without what earlier ones have left: a fork that collected a torch store would wait for its thread for ever.

    A test that hangs fails after LIMIT, and its agents are killed.
    """
    gc.collect()
    signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(LIMIT)
    try:
        test()
    finally:
        signal.alarm(0)
        for agent in multiprocessing.active_children():
            agent.kill()


def _hangs(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"the test has not ended after {LIMIT} s")


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


class EtcdAgentTest(EtcdCase, _cases):
    """The tests with etcd-v2. The rendezvous is in etcd."""

    def run_test_with_backend(self, backend: str, test_to_run: Callable[[], None]) -> None:
        assert backend == "etcd-v2"
        self._backend, self._endpoint = "elasticrun", self.address
        run(test_to_run)


checkout.without(AgentTest, [name for name in dir(_cases) if name.startswith("test_") and "etcd" in name])
checkout.without(EtcdAgentTest, [name for name in dir(_cases) if name.startswith("test_") and "etcd_v2" not in name])
del _cases
