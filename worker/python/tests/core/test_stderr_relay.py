"""The standard error of a driver in that of the caller."""

from __future__ import annotations

import os
import queue
import sys

from elasticrun._stderr_relay import StderrRelay

#: Longer than any machine needs, in seconds.
_PATIENCE = 30


class _Sink:
    """Standard error that a test reads."""

    def __init__(self) -> None:
        self.written: queue.Queue[str] = queue.Queue()

    def write(self, text: str) -> None:
        self.written.put(text)

    def flush(self) -> None:
        pass


def test_what_has_no_newline_is_forwarded_at_once(monkeypatch):
    sink = _Sink()
    monkeypatch.setattr(sys, "stderr", sink)
    read, write = os.pipe()
    relay = StderrRelay(open(read, "rb"))
    for text in ["\r10%", "\r20%", "\nname? "]:
        # Written only after the text before it has come.
        os.write(write, text.encode())
        assert sink.written.get(timeout=_PATIENCE) == text
    os.close(write)
    relay.join(_PATIENCE)
    assert relay.tail == "20%\nname?"


def test_the_tail_is_the_last_lines_however_they_were_cut(monkeypatch):
    monkeypatch.setattr(sys, "stderr", _Sink())
    text = "".join(f"é {line}\r\n" for line in range(100)) + "end"
    for size in range(1, 9):
        read, write = os.pipe()
        relay = StderrRelay(open(read, "rb"))
        data = text.encode()
        for start in range(0, len(data), size):
            os.write(write, data[start : start + size])
        os.close(write)
        relay.join(_PATIENCE)
        assert relay.tail.split("\n") == [f"é {line}" for line in range(80, 100)] + ["end"]
