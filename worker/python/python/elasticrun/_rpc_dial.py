"""Dials several addresses of one server at once, and keeps the first connection whose other end proves the key.

An address may lead nowhere, or to a stranger, such as a loopback address on another host. It must not delay the others. One
thread dials all of them, so none is left over when the caller's function forks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import selectors
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any

from ._rpc_channel import GREETING, NONCE, AuthenticationError, Channel

__all__ = ["dial"]


def dial(addresses: Iterable[str], port: int, key: bytes, timeout: float) -> Channel:
    """Connects to the first of ``addresses`` that proves the key within ``timeout`` seconds. The channel has no timeout yet.

    Raises:
        ConnectionError: none does. The message has the reason for each.
    """
    deadline = time.monotonic() + timeout
    failures: list[str] = []
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as cleanup:
        attempt: _Attempt
        for attempt in _attempts(addresses, port, key, failures):
            cleanup.callback(attempt.close)
            selector.register(attempt.socket, selectors.EVENT_WRITE, attempt)
        while selector.get_map():
            events = selector.select(max(0.0, deadline - time.monotonic()))
            if not events:
                silent = [waiting.data.address for waiting in selector.get_map().values()]
                failures += [f"{address}: no answer after {timeout:.0f} s" for address in silent]
                break
            for selected, _ in events:
                attempt = selected.data
                try:
                    channel = attempt.advance()
                except (OSError, AuthenticationError) as error:
                    failures.append(f"{attempt.address}: {error}")
                    selector.unregister(attempt.socket)
                    continue
                if channel is not None:
                    return channel
                selector.modify(attempt.socket, selectors.EVENT_READ, attempt)
    raise ConnectionError("; ".join(failures))


def _attempts(addresses: Iterable[str], port: int, key: bytes, failures: list[str]) -> Iterator[_Attempt]:
    for address in addresses:
        try:
            # Spark writes an IPv6 address in brackets.
            found = socket.getaddrinfo(address.removeprefix("[").removesuffix("]"), port, type=socket.SOCK_STREAM)
        except OSError as error:
            failures.append(f"{address}: {error}")
            continue
        for family, kind, protocol, _, target in found:
            # A name may have addresses of a family that this machine lacks, also as its first ones.
            try:
                stream = socket.socket(family, kind, protocol)
            except OSError as error:
                failures.append(f"{address} ({target[0]}): {error}")
                continue
            yield _Attempt(address, stream, target, key)


class _Attempt:
    """One address: connects, sends a random value, and checks the greeting."""

    def __init__(self, address: str, stream: socket.socket, target: Any, key: bytes) -> None:
        self.address = address
        self.socket = stream
        self._key = key
        self._nonce = secrets.token_bytes(NONCE)
        self._greeting = b""
        self._is_connected = False
        self._is_kept = False
        stream.setblocking(False)
        code = stream.connect_ex(target)
        self._refused = 0 if code == errno.EINPROGRESS else code

    def advance(self) -> Channel | None:
        """The next step, when the socket is ready for it. Returns the channel after the last one.

        Raises:
            OSError: the address is not reached.
            AuthenticationError: the other end does not hold the key.
        """
        if not self._is_connected:
            if code := self._refused or self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(code, os.strerror(code))
            # So few bytes fit into the buffer of a new connection.
            self.socket.send(self._nonce)
            self._is_connected = True
            return None
        part = self.socket.recv(GREETING - len(self._greeting))
        if not part:
            raise ConnectionError("the connection ended early")
        self._greeting += part
        if len(self._greeting) < GREETING:
            return None
        channel = Channel.connected(self.socket, self._key, self._nonce, self._greeting)
        self.socket.setblocking(True)
        self._is_kept = True
        return channel

    def close(self) -> None:
        """Closes the socket, unless its channel is kept."""
        if not self._is_kept:
            self.socket.close()
