"""Simple requests: a number and some bytes, to a node or a group."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from .._native import PsSimpleApp
from .handle import Handle
from .node import Postoffice, current

__all__ = ["SimpleApp", "SimpleData"]


@dataclass(frozen=True)
class SimpleData:
    """A simple request or an answer.

    Attributes:
        head: a number.
        body: some bytes.
        sender: id of the node that sent it.
        timestamp: number of the request at its sender.
    """

    head: int
    body: bytes
    sender: int
    timestamp: int


class SimpleApp:
    """Sends and handles simple requests. All nodes may have one.

    Args:
        on_request: handles a request, and returns the body of the answer, or None for an empty one. It is called on threads
            of the node, perhaps on several at once. An exception is logged by the logger ``elasticrun``, and the sender gets
            a PsRefused with its text.
        on_response: is called for each answer, before the request is completed. It must not wait for other requests.
        app: number of the app.
        postoffice: the node; that which this process has started last by default.

    Raises:
        PsConfigError: the process has this app already.
        PsError: the process has no node.
    """

    def __init__(
        self,
        on_request: Callable[[SimpleData], bytes | None] | None = None,
        on_response: Callable[[SimpleData], object] | None = None,
        app: int = 0,
        *,
        postoffice: Postoffice | None = None,
    ) -> None:
        self._on_request = on_request
        self._on_response = on_response
        self._native = PsSimpleApp(
            current(postoffice).native,
            app,
            None if on_request is None else self._answer,
            None if on_response is None else self._note,
        )

    def request(self, head: int, body: bytes = b"", to: int = 7) -> Handle[None]:
        """Sends a request. Returns at once. It is completed when all recipients have answered.

        Args:
            head: a number, 32 bits with a sign.
            body: some bytes.
            to: a group (1 to 7), to which this node may belong, or the id of a node.

        Raises:
            PsNodeLost: a recipient is dead.
            PsTimeout: too much waits to be sent.
            ValueError: ``to`` is neither.
        """
        return Handle(self._native.request(head, body, to), lambda: None)

    def _answer(self, head: int, body: bytes, sender: int, timestamp: int) -> bytes:
        assert self._on_request is not None, "it is called for a handler alone"
        data = SimpleData(head, body, sender, timestamp)
        try:
            return self._on_request(data) or b""
        except Exception:
            logging.getLogger("elasticrun").exception("the handler of %r failed", data)
            raise

    def _note(self, head: int, body: bytes, sender: int, timestamp: int) -> None:
        assert self._on_response is not None, "it is called for a handler alone"
        self._on_response(SimpleData(head, body, sender, timestamp))
