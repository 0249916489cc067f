"""An authenticated request and response over TCP, with which workers fetch a function and return its result.

``elasticrun.run`` listens. Each worker connects once to fetch the function, and once to return its result. Both
sides hold a key that is derived from the secret of the job. The caller receives it from its driver, a worker from the
agent of its host. Each frame proves the key before the receiver parses it::

    client: 32 random bytes                 server: 32 random bytes
    client: request frame                   server: answer frame

    frame: 8 bytes length, 32 bytes proof of the length, the bytes, 32 bytes proof of the bytes

A proof is an HMAC-SHA256 over the direction, both random values, and the proved bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
import threading
from collections.abc import Callable

__all__ = ["Server", "request"]

_LENGTH = struct.Struct("<Q")
_PROOF = 32
_TIMEOUT = 60.0


class _AuthenticationError(Exception):
    """The other side does not hold the key."""


class _Channel:
    """One connection, after both sides have exchanged their random values."""

    def __init__(self, stream: socket.socket, key: bytes, outward: bytes, inward: bytes) -> None:
        local = secrets.token_bytes(_PROOF)
        stream.sendall(local)
        remote = _read(stream, _PROOF)
        both = b"".join(sorted((local, remote)))
        self._stream = stream
        self._key = key
        self._outward = outward + both
        self._inward = inward + both

    def send(self, body: bytes) -> None:
        length = _LENGTH.pack(len(body))
        self._stream.sendall(length + self._proof(self._outward, length))
        self._stream.sendall(body)
        self._stream.sendall(self._proof(self._outward, body))

    def receive(self) -> bytes:
        length = _read(self._stream, _LENGTH.size)
        self._check(length)
        body = _read(self._stream, _LENGTH.unpack(length)[0])
        self._check(body)
        return body

    def _check(self, data: bytes) -> None:
        if not hmac.compare_digest(_read(self._stream, _PROOF), self._proof(self._inward, data)):
            raise _AuthenticationError("the other side does not hold the key")

    def _proof(self, direction: bytes, data: bytes) -> bytes:
        return hmac.new(self._key, direction + data, hashlib.sha256).digest()


class Server:
    """Answers requests with ``answer(request)`` on separate threads, from :meth:`unlock` until it is closed."""

    def __init__(self, host: str, answer: Callable[[bytes], bytes]) -> None:
        self._key = b""
        self._unlocked = threading.Event()
        self._answer = answer
        self._listener = socket.create_server((host, 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="elasticrun-call", daemon=True).start()

    def unlock(self, key: bytes) -> None:
        """Sets the key that clients hold. Requests that arrive before wait for it."""
        if not key:
            raise ValueError("the key is empty")
        self._key = key
        self._unlocked.set()

    def close(self) -> None:
        """Stops accepting connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream: socket.socket) -> None:
        # Clients without the key, and those that disconnect, are dropped silently.
        with stream, contextlib.suppress(OSError, _AuthenticationError):
            stream.settimeout(_TIMEOUT)
            if not self._unlocked.wait(_TIMEOUT):
                return
            channel = _Channel(stream, self._key, b"server", b"client")
            channel.send(self._answer(channel.receive()))


def request(addresses: list[str], port: int, key: bytes, body: bytes) -> bytes:
    """Sends ``body`` to the first of ``addresses`` that answers with the key, and returns its answer.

    Raises:
        ConnectionError: no address does.
    """
    failures = []
    for address in addresses:
        try:
            with socket.create_connection((address, port), timeout=_TIMEOUT / 6) as stream:
                stream.settimeout(_TIMEOUT)
                channel = _Channel(stream, key, b"client", b"server")
                channel.send(body)
                return channel.receive()
        except (OSError, _AuthenticationError) as error:
            failures.append(f"{address}: {error}")
    raise ConnectionError(
        f"this worker cannot reach the process that called elasticrun.run() at port {port}: {'; '.join(failures)}"
    )


def _read(stream: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = stream.recv(min(count - len(data), 1 << 20))
        if not part:
            raise ConnectionError("the connection ended early")
        data += part
    return bytes(data)
