"""The driver of a job as a child of this process, and the socket between them.

The driver tells where agents join, takes requests, and ends when the socket does (driver/src/embedder.rs).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from ..errors import ElasticrunError

__all__ = ["Driver", "Listening"]

#: Lines at the end of its stderr that an error quotes.
_LAST_LINES = 20
#: Seconds that a driver may take until it listens, and to end once its socket has.
_PATIENCE = 30.0


@dataclass(frozen=True)
class Listening:
    """Where agents join: the run, the port, the secret and the key of a call that workers fetch, both in hexadecimal
    digits."""

    run_id: str
    port: int
    secret: str = field(repr=False)
    call_key: str = field(repr=False)


class Driver:
    """A driver that was started.

    Args:
        command: the program and its options; ``--parent-fd`` is put behind its first two words.
        env: its variables. Its workers get them, too.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            words = [*command[:2], "--parent-fd", str(theirs.fileno()), *command[2:]]
            self.process = subprocess.Popen(words, env=dict(env), stderr=subprocess.PIPE, pass_fds=[theirs.fileno()])
        assert self.process.stderr is not None, "it is a pipe"
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._reader = threading.Thread(target=self._pass_on, args=(self.process.stderr,), daemon=True)
        self._reader.start()
        self._socket = ours
        self._lines = ours.makefile("rb")
        self._asking = threading.Lock()
        ours.settimeout(_PATIENCE)

    def listening(self) -> Listening | None:
        """Where agents join, once it is known; none if the driver ended before.

        Raises:
            ElasticrunError: it does not say so in time.
        """
        try:
            line = self._lines.readline()
        except TimeoutError:
            raise ElasticrunError(f"the driver does not listen after {_PATIENCE:.0f} s") from None
        return Listening(**json.loads(line)["listening"]) if line else None

    def drain(self, host: str, within: float | None = None) -> bool:
        """Has the job leave a host at a common commit; ``within`` are the seconds until it goes, if that is known.

        Returns:
            Whether the driver does so. It does not if the job ends, or knows no such host.
        """
        millis = None if within is None else int(within * 1000)
        with self._asking:
            try:
                line = json.dumps({"drain": {"host": host, "within_ms": millis}}).encode() + b"\n"
                self._socket.sendall(line)
                answer = self._lines.readline()
            except OSError:
                return False
        return bool(answer) and "done" in json.loads(answer)

    def wait(self, timeout: float | None = None) -> int | None:
        """Waits for its end; the exit code, or none if it still runs after so many seconds."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        # What the job left behind may still hold its stderr.
        self._reader.join(_PATIENCE)
        return code

    @property
    def last_words(self) -> str:
        """The last lines of its stderr."""
        return "\n".join(self._last).strip()

    def end(self) -> None:
        """Ends it if it runs, with all its workers, at once."""
        # Not closed: a reader may be at it.
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        if self.wait(_PATIENCE) is None:
            self.process.kill()
            self.process.wait()
        self._lines.close()
        self._socket.close()

    def _pass_on(self, source: IO[bytes]) -> None:
        with source:
            for line in source:
                text = line.decode(errors="replace")
                self._last.append(text.rstrip(os.linesep))
                sys.stderr.write(text)
                sys.stderr.flush()
