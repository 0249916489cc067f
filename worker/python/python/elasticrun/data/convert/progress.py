"""The progress of a conversion, on stderr."""

from __future__ import annotations

import sys
import time

#: Seconds between two lines on a terminal, and elsewhere.
_PAUSE, _LONG_PAUSE = 0.2, 10.0


class Progress:
    """Shows how much is read.

    Args:
        total: bytes of all sources.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._finished = 0
        self._began = time.monotonic()
        self._is_terminal = sys.stderr.isatty()
        self._due = self._began + (_PAUSE if self._is_terminal else _LONG_PAUSE)

    def show(self, rows: int, read: int) -> None:
        """Shows a line from time to time.

        Args:
            rows: that were written.
            read: bytes of the source that is being read.
        """
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + (_PAUSE if self._is_terminal else _LONG_PAUSE)
        read += self._finished
        share = 100 * read / max(self._total, 1)
        rate = read / 1e6 / max(now - self._began, 1e-3)
        line = f"{rows:,} rows, {read / 1e6:,.0f} of {self._total / 1e6:,.0f} MB ({share:.0f} %), {rate:,.0f} MB/s"
        self._print(line)

    def finished(self, size: int) -> None:
        """A source of so many bytes is read."""
        self._finished += size

    def end(self, line: str) -> None:
        """Shows the last line."""
        self._print(line)
        if self._is_terminal:
            print(file=sys.stderr)

    def _print(self, line: str) -> None:
        if self._is_terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)
