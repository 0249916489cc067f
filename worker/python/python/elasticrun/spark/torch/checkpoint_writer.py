"""Writes the checkpoints of a run to its store, in the program, while training goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from .. import store
from ..error_text import error_text
from ..job import report
from .checkpoint import Epoch

__all__ = ["CheckpointWriter", "Newest"]


class Newest:
    """The newest epoch that is not written yet.

    Workers may send an epoch twice. One of an earlier round may arrive late. Such epochs are dropped. If epochs end faster than
    they are written, the ones between are left out.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._seen = 0
        self._epoch: Epoch | None = None
        self._closed = False

    def put(self, epoch: Epoch) -> None:
        """Replaces the epoch that waits, if this one is newer than all before."""
        with self._changed:
            if epoch.number > self._seen:
                self._seen, self._epoch = epoch.number, epoch
                self._changed.notify()

    def take(self) -> Epoch | None:
        """Waits for an epoch. Returns None once there is none and :meth:`close` was called."""
        with self._changed:
            self._changed.wait_for(lambda: self._epoch is not None or self._closed)
            epoch, self._epoch = self._epoch, None
            return epoch

    def close(self) -> None:
        """Lets :meth:`take` return None after the epoch that waits."""
        with self._changed:
            self._closed = True
            self._changed.notify()


class CheckpointWriter:
    """Writes the newest epoch that it is offered, on a thread, so that training does not wait for the store.

    Use it as a context manager. Its end waits until the last epoch is written. A checkpoint that cannot be written is reported and
    does not end the training.

    Args:
        session: session whose file systems are used.
        path: path of the checkpoint, as Spark names it.
        report: prints a line for the user.
    """

    def __init__(self, session: SparkSession, path: str, report: Callable[[str], None] = report) -> None:
        self._session = session
        self._path = path
        self._report = report
        self._newest = Newest()
        self._thread = InheritableThread(target=self._run, name="elasticrun-checkpoints", daemon=True)

    def __enter__(self) -> CheckpointWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._newest.close()
        self._thread.join()

    def offer(self, epoch: Epoch) -> None:
        """Has an epoch written, unless a newer one was offered. Returns at once."""
        self._newest.put(epoch)

    def _run(self) -> None:
        while (epoch := self._newest.take()) is not None:
            try:
                store.replace(self._session, self._path, epoch.checkpoint)
            except Exception as error:  # Of py4j and of any file system
                self._report(f"warning: the checkpoint of epoch {epoch.number} was not written: {error_text(error)}")
