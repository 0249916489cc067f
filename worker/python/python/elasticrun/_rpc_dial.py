"""Dials several addresses of one server at once, and keeps the first connection whose other end proves to be the caller.

An address may lead nowhere, or to a stranger, such as a loopback address on another host. It must not delay the others. One
thread dials all of them, so none is left over when the caller's function forks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from typing import Any

from ._rpc_channel import AuthenticationError, Channel, tls_errors
from ._rpc_identity import CALLER

__all__ = ["dial"]


def dial(addresses: Iterable[str], port: int, context: ssl.SSLContext, timeout: float) -> Channel:
    """Connects to the first of ``addresses`` that proves to be the caller within ``timeout`` seconds. The channel has no timeout
    yet.

    Raises:
        ConnectionError: none does. The message has the reason for each.
    """
    deadline = time.monotonic() + timeout
    failures: list[str] = []
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as cleanup:
        attempt: _Attempt
        for attempt in _attempts(addresses, port, context, failures):
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
                    reached = attempt.advance()
                except (OSError, AuthenticationError) as error:
                    failures.append(f"{attempt.address}: {error}")
                    selector.unregister(attempt.socket)
                    continue
                if isinstance(reached, Channel):
                    return reached
                selector.modify(attempt.socket, reached, attempt)
    raise ConnectionError("; ".join(failures))


def _attempts(addresses: Iterable[str], port: int, context: ssl.SSLContext, failures: list[str]) -> Iterator[_Attempt]:
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
            yield _Attempt(address, stream, target, context)


class _Attempt:
    """One address: connects, and completes the handshake."""

    def __init__(self, address: str, stream: socket.socket, target: Any, context: ssl.SSLContext) -> None:
        self.address = address
        self.socket = stream
        self._context = context
        self._tls: ssl.SSLSocket | None = None
        self._is_kept = False
        stream.setblocking(False)
        code = stream.connect_ex(target)
        self._refused = 0 if code == errno.EINPROGRESS else code

    def advance(self) -> Channel | int:
        """The next step, when the socket is ready for it. Returns the event that the step after it needs, and at last the channel.

        Raises:
            OSError: the address is not reached.
            AuthenticationError: the other end is not the caller.
        """
        if self._tls is None:
            if code := self._refused or self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(code, os.strerror(code))
            tls = self._context.wrap_socket(self.socket, server_hostname=CALLER, do_handshake_on_connect=False)
            self.socket = self._tls = tls
        try:
            with tls_errors():
                self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            return selectors.EVENT_WRITE
        self._tls.setblocking(True)
        self._is_kept = True
        return Channel(self._tls)

    def close(self) -> None:
        """Closes the socket, unless its channel is kept."""
        if not self._is_kept:
            self.socket.close()
