"""A wrapper around a gloo operation that can be ended from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work as C10dWork


class Operation(C10dWork):
    """An operation that ends with gloo's operation or with the round.

    Args:
        gloo: the operation of gloo.
    """

    def __init__(self, gloo: Any) -> None:
        super().__init__()
        self._gloo = gloo
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._results: Any = None
        #: Whether a callback or a thread already waits for the end of gloo's operation.
        self._observed = False
        self._callbacks: list[Callable[[], None]] = []

    def follow(self, ended: Callable[[Operation], None]) -> None:
        """Calls ``ended`` once the operation is over, and subscribes to the end of gloo's operation."""
        self.on_end(lambda: ended(self))
        try:
            future = self._gloo.get_future()
        except RuntimeError:
            # Messages and a few collectives have no future, and can only be waited for.
            return
        self._observed = True
        future.add_done_callback(self._on_gloo_done)

    def end(self, error: Exception | None, results: Any = None) -> None:
        """Ends the operation, unless it has ended before."""
        with self._lock:
            if self._over.is_set():
                return
            self._error, self._results = error, results
            self._over.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_end(self, callback: Callable[[], None]) -> None:
        """Calls ``callback`` once the operation is over, possibly on another thread."""
        with self._lock:
            over = self._over.is_set()
            if not over:
                self._callbacks.append(callback)
        if over:
            callback()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Blocks until it is done.

        Raises:
            WorkersFailed: the round is over.
            RuntimeError: gloo's operation failed, or is not done after ``timeout``.
        """
        limited = timeout is not None and timeout > timedelta(0)
        self._observe(timeout if limited else None)
        if not self._over.wait(timeout.total_seconds() if limited and timeout else None):
            raise RuntimeError(f"gloo: Timed out waiting {timeout} for an operation")
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """Like :meth:`wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether :meth:`wait` would return or raise at once."""
        self._observe(None)
        return self._over.is_set()

    def is_success(self) -> bool:
        """Whether it is done and did not fail."""
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        """The error, if it is done and failed."""
        return self._error if self.is_completed() else None

    def result(self) -> Any:
        """The tensors that hold the results."""
        return self._gloo.result()

    def _source_rank(self) -> int:
        return int(self._gloo._source_rank())

    source_rank = _source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the results."""
        self._observe(None)
        ended: torch.futures.Future[None] = torch.futures.Future()
        # Only a callback that raises makes a future that torch's own code sees as failed.
        future = ended.then(self._outcome)
        self.on_end(lambda: ended.set_result(None))
        return future

    def _outcome(self, _: object) -> Any:
        if self._error is not None:
            raise self._error
        return self._results

    def _on_gloo_done(self, future: torch.futures.Future[Any]) -> None:
        try:
            results = future.value()
        except Exception as error:
            self.end(error)
        else:
            self.end(None, results)

    def _observe(self, timeout: timedelta | None) -> None:
        """Starts a thread that waits for gloo, once, because gloo allows only one wait."""
        with self._lock:
            first, self._observed = not self._observed, True
        if first:
            threading.Thread(target=self._wait_for_gloo, args=(timeout,), name="elasticrun gloo", daemon=True).start()

    def _wait_for_gloo(self, timeout: timedelta | None) -> None:
        try:
            if timeout is None:
                self._gloo.wait()
            else:
                self._gloo.wait(timeout)
        except Exception as error:
            self.end(error)
        else:
            self.end(None, [])
