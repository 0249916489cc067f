"""The driver of a job as a child process, and the socket to it.

The driver sends the address at which agents join, takes requests, and exits when the socket is closed (driver/src/embedder.rs).
"""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .._rpc_identity import Identity
from .._stderr_relay import StderrRelay
from ..errors import ElasticrunError

__all__ = ["DriverEndpoint", "DriverProcess"]

#: Timeout in seconds for the driver to listen, and to exit after its socket is closed.
_TIMEOUT = 30.0


@dataclass(frozen=True)
class DriverEndpoint:
    """The endpoint at which agents join: run id, port, the join token of the job, and the identity by which workers
    recognise the server of a call."""

    run_id: str
    port: int
    token: str = field(repr=False)
    call_identity: Identity


class DriverProcess:
    """A driver, which is started by the constructor.

    Args:
        command: the program and its options. ``--parent-fd`` is inserted after the first two words.
        env: environment of the driver, which its workers inherit.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            words = [*command[:2], "--parent-fd", str(theirs.fileno()), *command[2:]]
            self.process = subprocess.Popen(words, env=dict(env), stderr=subprocess.PIPE, pass_fds=[theirs.fileno()])
        assert self.process.stderr is not None, "it is a pipe"
        self._stderr = StderrRelay(self.process.stderr)
        self._socket = ours
        self._lines = ours.makefile("rb")
        self._request_lock = threading.Lock()
        ours.settimeout(_TIMEOUT)

    def listening(self) -> DriverEndpoint | None:
        """Waits for the endpoint at which agents join. Returns None if the driver ended before.

        Raises:
            ElasticrunError: the driver does not listen in time.
        """
        try:
            line = self._lines.readline()
        except TimeoutError:
            raise ElasticrunError(f"the driver does not listen after {_TIMEOUT:.0f} s") from None
        if not line:
            return None
        found = json.loads(line)["listening"]
        return DriverEndpoint(**{**found, "call_identity": Identity.decode(json.dumps(found["call_identity"]))})

    def drain(self, host: str, within: float | None = None) -> bool:
        """Drains a host: its workers leave at a common commit. ``within``: seconds until the host is gone, if known.

        Returns:
            Whether the driver accepts. It refuses if the job is ending or has no such host.
        """
        millis = None if within is None else int(within * 1000)
        with self._request_lock:
            try:
                line = json.dumps({"drain": {"host": host, "within_ms": millis}}).encode() + b"\n"
                self._socket.sendall(line)
                answer = self._lines.readline()
            except OSError:
                return False
        return bool(answer) and "done" in json.loads(answer)

    def wait(self, timeout: float | None = None) -> int | None:
        """Waits for the driver to exit. Returns the exit code, or None if it still runs after ``timeout`` seconds."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        # Orphans of the job may still hold its stderr.
        self._stderr.join(_TIMEOUT)
        return code

    @property
    def stderr_tail(self) -> str:
        """The last lines of the driver's stderr."""
        return self._stderr.tail

    def end(self) -> None:
        """Ends the driver and all its workers immediately, if it runs."""
        # Shut down rather than closed, because another thread may be reading.
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        if self.wait(_TIMEOUT) is None:
            self.process.kill()
            self.process.wait()
        self._lines.close()
        self._socket.close()
