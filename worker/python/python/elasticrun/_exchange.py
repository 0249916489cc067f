"""A function on its way to the workers, and its results on their way back.

``elasticrun.run`` listens; each worker connects once to fetch the function, and once to bring its result. Both
sides hold a key that is made of the job's secret: the caller has it from its driver, a worker from the agent of its
host. Each frame proves the key before it is looked at::

    client: 32 random bytes                 server: 32 random bytes
    client: request frame                   server: answer frame

    frame: 8 bytes length, 32 bytes proof of the length, the bytes, 32 bytes proof of the bytes

A proof is an HMAC-SHA256 over the direction, both random values, and what is proved.
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

__all__ = ["Server", "ask"]

_LENGTH = struct.Struct("<Q")
_PROOF = 32
_PATIENCE = 60.0


class _Refused(Exception):
    """The other side does not hold the key."""


class _Channel:
    """One connection after the exchange of random values."""

    def __init__(self, stream: socket.socket, key: bytes, outward: bytes, inward: bytes) -> None:
        own = secrets.token_bytes(_PROOF)
        stream.sendall(own)
        other = _read(stream, _PROOF)
        both = b"".join(sorted((own, other)))
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
            raise _Refused("the other side does not hold the key")

    def _proof(self, direction: bytes, data: bytes) -> bytes:
        return hmac.new(self._key, direction + data, hashlib.sha256).digest()


class Server:
    """Answers requests with ``answer(request)``, in threads of its own, from :meth:`unlock` until it is closed."""

    def __init__(self, host: str, answer: Callable[[bytes], bytes]) -> None:
        self._key = b""
        self._unlocked = threading.Event()
        self._answer = answer
        self._listener = socket.create_server((host, 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="elasticrun-call", daemon=True).start()

    def unlock(self, key: bytes) -> None:
        """The key that clients hold. Those that came before it wait for it."""
        if not key:
            raise ValueError("the key is empty")
        self._key = key
        self._unlocked.set()

    def close(self) -> None:
        """Takes no more connections."""
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
        # Whoever does not hold the key, or goes away, is not worth a word.
        with stream, contextlib.suppress(OSError, _Refused):
            stream.settimeout(_PATIENCE)
            if not self._unlocked.wait(_PATIENCE):
                return
            channel = _Channel(stream, self._key, b"server", b"client")
            channel.send(self._answer(channel.receive()))


def ask(addresses: list[str], port: int, key: bytes, request: bytes) -> bytes:
    """The answer of the server at the first of ``addresses`` that is it.

    Raises:
        ConnectionError: none of them is.
    """
    failures = []
    for address in addresses:
        try:
            with socket.create_connection((address, port), timeout=_PATIENCE / 6) as stream:
                stream.settimeout(_PATIENCE)
                channel = _Channel(stream, key, b"client", b"server")
                channel.send(request)
                return channel.receive()
        except (OSError, _Refused) as error:
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
