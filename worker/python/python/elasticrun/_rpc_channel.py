"""The connection of the call of ``elasticrun.run``: mutual TLS between the caller and a worker, and one frame each way.

::

    client: request frame                   server: answer frame

    frame: 8 bytes length, the bytes

The receiver parses nothing before the other end has proved its role in this job.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator

from ._rpc_identity import WORKER

__all__ = ["AuthenticationError", "Channel", "tls_errors"]

_LENGTH = struct.Struct("<Q")
#: Bytes that are sent within one timeout. The library has one deadline for all that it is given at once.
_SLICE = 256 << 10


class AuthenticationError(Exception):
    """The other end has no identity of this job, or another role in it."""


@contextlib.contextmanager
def tls_errors() -> Iterator[None]:
    """Raises errors of TLS as what they mean.

    Raises:
        AuthenticationError: one end does not accept the identity of the other.
        ConnectionError: the connection is lost.
    """
    try:
        yield
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        raise
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError) as error:
        raise ConnectionError("the connection ended early") from error
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", None) or error.reason or error
        raise AuthenticationError(f"the other side is not of this job ({reason})") from error


class Channel:
    """One connection, after its handshake. Closes it at the end of its context."""

    def __init__(self, stream: ssl.SSLSocket) -> None:
        self._stream = stream

    @classmethod
    def accept(cls, stream: socket.socket, context: ssl.SSLContext) -> Channel:
        """The server's end. ``stream`` is of the channel then.

        Raises:
            AuthenticationError: the client is no worker of this job.
            OSError: the connection is lost.
        """
        with tls_errors():
            tls = context.wrap_socket(stream, server_side=True)
        certificate = tls.getpeercert() or {}
        if ("DNS", WORKER) not in certificate.get("subjectAltName", ()):
            tls.close()
            raise AuthenticationError("the other side is no worker")
        return cls(tls)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def set_timeout(self, seconds: float) -> None:
        """Sets the time for the other side to go on with a message. One that takes longer raises TimeoutError."""
        self._stream.settimeout(seconds)

    def send(self, body: bytes) -> None:
        """Sends one frame.

        Raises:
            AuthenticationError: the other end has refused the identity of this one.
            OSError: the connection is lost.
        """
        with tls_errors():
            self._stream.sendall(_LENGTH.pack(len(body)))
            rest = memoryview(body)
            while rest:
                self._stream.sendall(rest[:_SLICE])
                rest = rest[_SLICE:]

    def receive(self) -> bytes:
        """Receives one frame.

        Raises:
            AuthenticationError: the other end has refused the identity of this one.
            OSError: the connection is lost.
        """
        with tls_errors():
            return bytes(self._read(_LENGTH.unpack(self._read(_LENGTH.size))[0]))

    def _read(self, count: int) -> bytearray:
        data = bytearray(count)
        rest = memoryview(data)
        while rest:
            received = self._stream.recv_into(rest)
            if not received:
                raise ConnectionError("the connection ended early")
            rest = rest[received:]
        return data
