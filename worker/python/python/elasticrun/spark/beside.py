"""A thread that looks at something now and then, beside a job."""

from __future__ import annotations

import threading

__all__ = ["Beside"]


class Beside:
    """Looks until it is stopped. The thread ends with its process.

    Args:
        name: of the thread.
        pause: seconds before the first look.
    """

    def __init__(self, name: str, pause: float) -> None:
        self._pause = pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"elasticrun-{name}", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Looks no more. What it looks after may call this itself."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def look(self) -> float | None:
        """Looks once: gives the seconds to the next look, or None if there is nothing more to look for."""
        raise NotImplementedError

    def _watch(self) -> None:
        pause: float | None = self._pause
        while pause is not None and not self._stop.wait(pause):
            pause = self.look()
