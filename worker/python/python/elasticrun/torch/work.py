"""The Work object of an operation, for torch.distributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work as C10dWork

from .inflight import Inflight


class Work(C10dWork):
    """An operation of the ``elasticrun`` back end.

    :meth:`wait` raises errors of the round unchanged (``WorkersFailed`` and others). A caller that uses only the future, such as
    DistributedDataParallel, gets a ``RuntimeError`` with the same text, because torch does not preserve the type.
    ``elasticrun.torch.elastic.run`` recognises both.
    """

    def __init__(
        self,
        pending: Inflight,
        results: Sequence[torch.Tensor],
        timeout: timedelta | None,
        failed: Callable[[Exception], None],
        source: Callable[[], int] | None = None,
    ) -> None:
        super().__init__()
        self._pending = pending
        self._results = list(results)
        self._timeout = timeout
        self._failed = failed
        self._source = source
        self._future: torch.futures.Future[Any] | None = None
        self._error: Exception | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Blocks until the results are available, at most ``timeout``. Default: the timeout of the call."""
        limit = timeout if timeout is not None and timeout > timedelta(0) else self._timeout
        try:
            self._pending.wait(None if limit is None else limit.total_seconds())
        except Exception as error:
            self._error = error
            self._failed(error)
            raise
        return True

    def synchronize(self) -> None:
        """Same as :meth:`wait`, because the results are in host memory."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether :meth:`wait` would return or raise at once."""
        return self._pending.done()

    def is_success(self) -> bool:
        """Whether it is done and did not fail."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """The error, if it is done and failed."""
        if self._error is None and self.is_completed():
            try:
                self.wait()
            except Exception as error:
                return error
        return self._error

    def result(self) -> list[torch.Tensor]:
        """The tensors that hold the results."""
        return self._results

    def _source_rank(self) -> int:
        """The rank in the group that sent the received message, once the operation is done."""
        if self._source is None:
            raise ValueError("only an operation that receives has a source")
        return self._source()

    source_rank = _source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the results, completed from the thread that ran the operation."""
        if self._future is None:
            ended: torch.futures.Future[Exception | None] = torch.futures.Future()
            # Only a callback that raises makes a future that torch's own code sees as failed.
            self._future = ended.then(self._outcome)
            self._pending.then(ended.set_result)
        return self._future

    def _outcome(self, ended: torch.futures.Future[Exception | None]) -> list[torch.Tensor]:
        error = ended.value()
        if error is not None:
            self._error = error
            self._failed(error)
            raise error
        return self._results
