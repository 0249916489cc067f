"""PyTorch's tests of its agent with the back end c10d, with ours in its place."""

from collections.abc import Callable

import pytorch_checkout as checkout

_cases = checkout.module("test/distributed/elastic/agent/server/test/local_elastic_agent_test.py").LocalElasticAgentTest


class AgentTest(_cases):
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
        test_to_run()


checkout.without(AgentTest, [name for name in dir(AgentTest) if name.startswith("test_") and "etcd" in name])
del _cases
