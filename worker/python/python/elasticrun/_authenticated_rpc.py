"""An authenticated request and response over TCP, with which workers fetch a function and return its result.

``elasticrun.run`` listens. Each worker connects once to fetch the function, and once to return its result. Both sides have an
identity of the job. The caller receives it from its driver, a worker from the agent of its host.

A network or a caller that stands still for a while must not lose the result of a training. So a request may be repeated, and
the server may get it more than once.
"""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable

from ._rpc_channel import AuthenticationError, Channel
from ._rpc_dial import dial
from ._rpc_identity import Identity

__all__ = ["Server", "request"]

#: Seconds for the other side to go on with a message, and for the identity to arrive.
_TIMEOUT = 60.0
#: Seconds for a connection and its handshake.
_DIAL_TIMEOUT = 10.0
#: Seconds after which a connection is accepted again, when that was not possible.
_ACCEPT_PAUSE = 0.1
#: First and longest pause in seconds before a request is repeated. Each pause is twice the one before.
_PAUSES = (0.1, 10.0)


class Server:
    """Answers requests with ``answer(request)`` on separate threads, from :meth:`unlock` until it is closed.

    Args:
        host: address to listen at, of IPv4 or IPv6. Empty: all addresses of this machine.
        answer: gives the answer to a request. Equal requests may arrive more than once.
    """

    def __init__(self, host: str, answer: Callable[[bytes], bytes]) -> None:
        self._context: ssl.SSLContext | None = None
        self._unlocked = threading.Event()
        self._answer = answer
        self._listener = _listen(host)
        self._closed = threading.Event()
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="elasticrun-call", daemon=True).start()

    def unlock(self, identity: Identity) -> None:
        """Sets the identity of this end. Requests that arrive before wait for it."""
        self._context = identity.context(serves=True)
        self._unlocked.set()

    def close(self) -> None:
        """Stops accepting connections."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                # Most likely this process is out of descriptors. Workers repeat their requests.
                if self._closed.wait(_ACCEPT_PAUSE):
                    return
                continue
            try:
                threading.Thread(target=self._serve, args=(stream,), daemon=True).start()
            except RuntimeError:
                # The system has no thread left.
                stream.close()

    def _serve(self, stream: socket.socket) -> None:
        # Clients that are no workers of the job, and those that disconnect, are dropped silently.
        with stream, contextlib.suppress(OSError, AuthenticationError):
            self._unlocked.wait(_TIMEOUT)
            if self._context is None:
                return
            stream.settimeout(_DIAL_TIMEOUT)
            with Channel.accept(stream, self._context) as channel:
                channel.set_timeout(_TIMEOUT)
                channel.send(self._answer(channel.receive()))


def _listen(host: str) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", 0), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=1024)


def request(
    addresses: list[str], port: int, identity: Identity, body: bytes, patience: float = 0.0, timeout: float = _TIMEOUT
) -> bytes:
    """Sends ``body`` to the first of ``addresses`` that proves to be the caller, and returns its answer.

    Args:
        addresses: addresses of the server.
        port: its port.
        identity: that of this worker.
        body: the request.
        patience: seconds for which it is repeated, with growing pauses, until an answer comes. 0: tries once.
        timeout: seconds for the other side to go on with a message.

    Raises:
        ConnectionError: no answer came.
    """
    deadline = time.monotonic() + patience
    context = identity.context(serves=False)
    pause, longest = _PAUSES
    while True:
        try:
            with dial(addresses, port, context, min(timeout, _DIAL_TIMEOUT)) as channel:
                channel.set_timeout(timeout)
                channel.send(body)
                return channel.receive()
        except (OSError, AuthenticationError) as error:
            if time.monotonic() + pause > deadline:
                raise ConnectionError(
                    f"this worker cannot reach the process that called elasticrun.run() at port {port}: {error}"
                ) from error
        # Many workers lose the caller at once and should not return at once.
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, longest)
