"""The frames of the call of ``elasticrun.run``, between two ends that hold one key.

A connection begins with 32 random bytes of each side, then the server proves the key::

    client: 32 random bytes                 server: 32 random bytes, greeting
    client: request frame                   server: answer frame

    frame: 8 bytes length, 32 bytes proof of the length, the bytes, 32 bytes proof of the bytes

A proof is an HMAC-SHA256 over a label, both random values, and the proved bytes. The greeting is the proof of no bytes. The
receiver parses nothing before its proof.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct

__all__ = ["GREETING", "NONCE", "AuthenticationError", "Channel"]

#: Length of a random value.
NONCE = 32
#: Length of what a server sends first: its random value and its greeting.
GREETING = NONCE + 32

_LENGTH = struct.Struct("<Q")
_PROOF = 32
# Of one length, so that no label with its random values reads as another one.
_CLIENT, _SERVER, _GREETS = b"client", b"server", b"greets"


class AuthenticationError(Exception):
    """The other side does not hold the key."""


class Channel:
    """One connection, after both sides have exchanged their random values. Closes it at the end of its context."""

    def __init__(self, stream: socket.socket, key: bytes, nonces: tuple[bytes, bytes], *, serves: bool) -> None:
        self._stream = stream
        self._key = key
        self._nonces = b"".join(sorted(nonces))
        self._outward, self._inward = (_SERVER, _CLIENT) if serves else (_CLIENT, _SERVER)

    @classmethod
    def accept(cls, stream: socket.socket, key: bytes) -> Channel:
        """The server's end: exchanges the random values and greets."""
        local = secrets.token_bytes(NONCE)
        stream.sendall(local)
        channel = cls(stream, key, (local, _read(stream, NONCE)), serves=True)
        stream.sendall(channel._proof(_GREETS, b""))
        return channel

    @classmethod
    def connected(cls, stream: socket.socket, key: bytes, local: bytes, greeting: bytes) -> Channel:
        """The client's end, after it has sent ``local`` and received :data:`GREETING` bytes.

        Raises:
            AuthenticationError: the server does not hold the key.
        """
        channel = cls(stream, key, (local, greeting[:NONCE]), serves=False)
        channel._verify(_GREETS, b"", greeting[NONCE:])
        return channel

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def set_timeout(self, seconds: float) -> None:
        """Sets the time for the other side to go on with a message. One that takes longer raises TimeoutError."""
        self._stream.settimeout(seconds)

    def send(self, body: bytes) -> None:
        """Sends one frame."""
        length = _LENGTH.pack(len(body))
        self._stream.sendall(length + self._proof(self._outward, length))
        self._stream.sendall(body)
        self._stream.sendall(self._proof(self._outward, body))

    def receive(self) -> bytes:
        """Receives one frame.

        Raises:
            AuthenticationError: the other side does not hold the key.
            OSError: the connection is lost.
        """
        length = _read(self._stream, _LENGTH.size)
        self._verify(self._inward, length, _read(self._stream, _PROOF))
        body = _read(self._stream, _LENGTH.unpack(length)[0])
        self._verify(self._inward, body, _read(self._stream, _PROOF))
        return body

    def _verify(self, label: bytes, data: bytes, proof: bytes) -> None:
        if not hmac.compare_digest(proof, self._proof(label, data)):
            raise AuthenticationError("the other side does not hold the key")

    def _proof(self, label: bytes, data: bytes) -> bytes:
        return hmac.new(self._key, label + self._nonces + data, hashlib.sha256).digest()


def _read(stream: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = stream.recv(min(count - len(data), 1 << 20))
        if not part:
            raise ConnectionError("the connection ended early")
        data += part
    return bytes(data)
