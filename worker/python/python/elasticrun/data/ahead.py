"""Batches that are decoded and transformed ahead of the training step."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import select
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from .. import _native
from ..errors import DataError

T = TypeVar("T")

#: After this time a transform that has not returned is named in a warning.
PATIENCE_S = 60.0


class NotReady(Exception):
    """A batch is not ready in time."""


#: Waits for a batch, at most so many seconds. ``NotReady`` if it takes longer.
Awaited = Callable[[float], T]


class Steps:
    """The steps of a data set, which several loops may take.

    Args:
        data: the rows.
    """

    def __init__(self, data: _native.Data) -> None:
        self._data = data
        self._taken = 0

    def take(self) -> _native.Batch | None:
        """The rows of the next step, which count as processed. None at the end of the epoch."""
        self._taken += 1
        return self._data.next_batch()

    def look_ahead(self, steps: int) -> _native.Batch | None:
        """The rows of the step that follows so many others, which do not count. None if the epoch has no such step."""
        return self._data.look_ahead(steps)

    def left(self) -> int:
        """The number of steps of the epoch that are left. A commit makes it smaller if rows were dropped."""
        return self._data.position()[3]

    def place(self) -> tuple[int, int]:
        """What changes when rows are assigned anew, or when a loop takes a step."""
        return self._data.assignments(), self._taken


def in_order(data: Steps, prepare: Callable[[_native.Batch], Awaited[T]], ahead: int, threads: int = 1) -> Iterator[T]:
    """The rest of the epoch, prepared in threads up to ``ahead`` batches before they are taken.

    The rows of a batch count as processed once it is returned, and those of batches that are ready before do not: whoever stops
    here, or begins a new round, reads them again. Exceptions are raised where the batch would have been returned.

    Args:
        data: the rows.
        prepare: makes a batch of them, or begins to. Called by so many threads at once.
        ahead: number of batches, at least 1.
        threads: number of threads.
    """
    pool = ThreadPoolExecutor(threads, "elasticrun-data")
    ready: deque[Future[Awaited[T]]] = deque()
    place = data.place()
    try:
        while True:
            # The next rows are others now, or some steps are no more.
            _cancel(ready, 0 if data.place() != place else data.left())
            _fill(data, ready, pool, prepare, ahead)
            if not ready:
                return
            batch = _result(ready[0])
            ready.popleft()
            data.take()
            place = data.place()
            yield batch
    finally:
        _cancel(ready, 0)
        pool.shutdown(wait=False)


def _fill(
    data: Steps,
    ready: deque[Future[Awaited[T]]],
    pool: Executor,
    prepare: Callable[[_native.Batch], Awaited[T]],
    ahead: int,
) -> None:
    while len(ready) <= ahead:
        try:
            rows = data.look_ahead(len(ready))
        except DataError:
            # It is the reader's turn once the batches before are taken.
            if ready:
                return
            raise
        if rows is None:
            return
        ready.append(pool.submit(prepare, rows))


def _cancel(ready: deque[Future[Awaited[T]]], stay: int) -> None:
    """Drops all but the first so many."""
    while len(ready) > stay:
        ready.pop().cancel()


def _result(future: Future[Awaited[T]]) -> T:
    begun = time.monotonic()
    while True:
        if wait([future], PATIENCE_S).done:
            try:
                return future.result()(PATIENCE_S)
            except NotReady:
                pass
        warnings.warn(
            f"a batch has been decoded and transformed for {time.monotonic() - begun:.0f} s: does transform hang?",
            RuntimeWarning,
            stacklevel=2,
        )


#: The function of a process of :class:`Processes`.
_function: Callable[[Any], Any] | None = None


def _adopt(function: Callable[[Any], Any], parent: int, begin: Callable[[int], None] | None, numbers: Any) -> None:
    """Begins a process."""
    global _function
    _function = function
    # What it has inherited is not its own to release: threads of this one are needed for that.
    gc.freeze()
    gc.enable()
    # The one that has forked this one handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if "torch" in sys.modules:
        # Threads of OpenMP do not survive a fork.
        sys.modules["torch"].set_num_threads(1)
    if begin is not None:
        with numbers.get_lock():
            number, numbers.value = numbers.value, numbers.value + 1
        begin(number)


def _end_with(parent: int) -> None:
    """Ends this process with the one that has forked it, also if that is killed."""
    try:
        select.select([os.pidfd_open(parent)], [], [])
    except OSError:
        # It has ended already, or the system has no such descriptors.
        while os.getppid() == parent:
            time.sleep(1)
    os._exit(0)


def _call(argument: bytes) -> bytes:
    assert _function is not None
    # Plain bytes: torch would pass its tensors on in shared memory, which ends with the process.
    return pickle.dumps(_function(pickle.loads(argument)), pickle.HIGHEST_PROTOCOL)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Has no garbage collected, here and in processes that are forked meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Processes:
    """Calls a function in processes that are forked from this one.

    Args:
        function: the function. It need not be pickled, but arguments and results are.
        name: what it is for the user.
        count: number of processes.
        begin: is called in each new process with its number, from 0.
    """

    def __init__(
        self, function: Callable[[Any], Any], name: str, count: int, begin: Callable[[int], None] | None = None
    ) -> None:
        self._function, self._name, self._count, self._begin = function, name, count, begin
        self._pool: ProcessPoolExecutor | None = None

    def start(self) -> None:
        """Forks the processes unless they run. Called before the threads of a loop are there: what such a thread holds at that
        moment, such as the lock of an import, a new process would wait for without an end."""
        if self._pool is not None:
            return
        # As torch's DataLoader does. The main module of a script may train when it is imported once more.
        context = multiprocessing.get_context("fork")
        first = (self._function, os.getpid(), self._begin, context.Value("i", 0))
        pool = ProcessPoolExecutor(self._count, context, _adopt, first)
        # The first call forks all of them. See _adopt.
        with _without_collections():
            pool.submit(os.getpid)
        self._pool = pool

    def call(self, argument: Any) -> Awaited[Any]:
        """Calls the function. Returns a function that waits, at most so many seconds, and returns what it returned.

        Both raise DataError if a process has died.
        """
        pool = self._pool
        if pool is None:
            raise self._died(pool)
        try:
            future = pool.submit(_call, pickle.dumps(argument, pickle.HIGHEST_PROTOCOL))
        except BrokenProcessPool as error:
            raise self._died(pool) from error

        def result(timeout: float) -> Any:
            if not wait([future], timeout).done:
                raise NotReady
            try:
                return pickle.loads(future.result())
            except BrokenProcessPool as error:
                raise self._died(pool) from error

        return result

    def _died(self, pool: ProcessPoolExecutor | None) -> DataError:
        if self._pool is pool:
            self.stop()
        return DataError(f"a process that runs {self._name} has died: the system may have killed it for lack of memory")

    def stop(self) -> None:
        """Ends the processes, also those that are stopped or do not return: else this one could not end either."""
        pool, self._pool = self._pool, None
        if pool is not None:
            # shutdown() forgets them.
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()
