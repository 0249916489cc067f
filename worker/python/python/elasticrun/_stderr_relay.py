"""Forwards the standard error of a driver to that of this process, and keeps its last lines."""

from __future__ import annotations

import codecs
import io
import sys
import threading
from collections import deque
from typing import IO

__all__ = ["StderrRelay"]

#: Number of lines from the end that an error quotes.
_LAST_LINES = 20
#: Characters kept of a line without an end.
_LINE_LENGTH = 4096


class StderrRelay:
    """A thread that forwards what it reads at once, also lines without an end, such as a progress bar of a worker.

    Args:
        source: the pipe of the driver, which the thread closes.
    """

    def __init__(self, source: IO[bytes]) -> None:
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._open = ""
        self._thread = threading.Thread(target=self._run, args=(source,), daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Waits for the end of the pipe, for at most ``timeout`` seconds."""
        self._thread.join(timeout)

    @property
    def tail(self) -> str:
        """The last lines so far. Of a line with carriage returns, only what follows the last one is kept."""
        return "\n".join([*self._lines, self._open]).strip()

    def _run(self, source: IO[bytes]) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with source:
            while chunk := source.read1(io.DEFAULT_BUFFER_SIZE):  # type: ignore[attr-defined]
                text = decoder.decode(chunk)
                self._keep(text)
                sys.stderr.write(text)
                sys.stderr.flush()

    def _keep(self, text: str) -> None:
        *whole, self._open = (self._open + text).split("\n")
        self._lines.extend(_shown(line) for line in whole)
        self._open = _shown(self._open)[:_LINE_LENGTH] + "\r" * self._open.endswith("\r")


def _shown(line: str) -> str:
    """What a terminal shows of a line."""
    return line.rstrip("\r").rpartition("\r")[2]
