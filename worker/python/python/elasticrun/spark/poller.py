"""A thread that polls something regularly while a job runs."""

from __future__ import annotations

import threading

__all__ = ["Poller"]


class Poller:
    """Calls :meth:`poll` until it is stopped. The thread is a daemon.

    Args:
        name: name of the thread.
        pause: seconds before the first poll.
    """

    def __init__(self, name: str, pause: float) -> None:
        self._pause = pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"elasticrun-{name}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread. :meth:`poll` may call this as well."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def poll(self) -> float | None:
        """Polls once. Returns the seconds until the next poll, or None to end the thread."""
        raise NotImplementedError

    def _run(self) -> None:
        pause: float | None = self._pause
        while pause is not None and not self._stop.wait(pause):
            pause = self.poll()
