"""The server's side: a store that adds up, or a handler of yours."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import numpy

from .._native import PsServer, PsServerRequest
from .arrays import ValueType
from .node import Postoffice, current

__all__ = ["LATER", "KvServer", "Request"]


class _Later:
    def __repr__(self) -> str:
        return "elasticrun.ps.LATER"


#: What a handler returns if it has not answered a request yet: :meth:`Request.respond` or :meth:`Request.refuse` does it later.
LATER: Final = _Later()


class Request:
    """A request to an app of a server. Its arrays are copies, which a handler may keep and change.

    Attributes:
        cmd: the number that the worker gave.
        is_push: whether values are pushed.
        is_pull: whether values are pulled.
        sender: id of the worker.
        timestamp: number of the request at its customer.
        customer: number of the customer of the worker.
    """

    def __init__(self, native: PsServerRequest, values: ValueType) -> None:
        self._native = native
        self._type = values
        self.cmd = native.cmd
        self.is_push = native.is_push
        self.is_pull = native.is_pull
        self.sender = native.sender
        self.timestamp = native.timestamp
        self.customer = native.customer

    def __repr__(self) -> str:
        kind = "-".join(name for name, has in (("push", self.is_push), ("pull", self.is_pull)) if has)
        return f"<elasticrun.ps.Request {kind} {self.timestamp} of node {self.sender}>"

    @property
    def keys(self) -> numpy.ndarray[Any, numpy.dtype[numpy.uint64]]:
        """The n keys, strictly ascending."""
        return numpy.frombuffer(self._native.keys, numpy.uint64)

    @property
    def values(self) -> Any:
        """The pushed values, key by key: shape (sum of lens,). Empty if nothing is pushed."""
        return self._type.received(self._native.values)

    @property
    def lens(self) -> numpy.ndarray[Any, numpy.dtype[numpy.uint32]]:
        """How many values are pushed for each key: shape (n,)."""
        if self._native.lens is not None:
            return numpy.frombuffer(self._native.lens, numpy.uint32)
        count = len(self.keys)
        return numpy.full(count, len(self.values) // count, numpy.uint32)

    @property
    def expected(self) -> numpy.ndarray[Any, numpy.dtype[numpy.uint32]] | None:
        """How many values a pull expects for each key: shape (n,). None if the server is to know, or nothing is pulled."""
        if self._native.expected_lens is not None:
            return numpy.frombuffer(self._native.expected_lens, numpy.uint32)
        if self._native.expected_per_key is None:
            return None
        return numpy.full(len(self.keys), self._native.expected_per_key, numpy.uint32)

    def respond(self, values: Any = None, lens: Any = None) -> None:
        """Answers the request, from any thread. A handler that returns LATER has this called afterwards.

        Args:
            values: the values of a pull, key by key, in any shape. They are copied.
            lens: how many each key has, if they differ and the worker does not know it.

        Raises:
            PsError: it is answered already.
            TypeError: the values are of another type than the server's.
            ValueError: there are not as many as the worker expects.
        """
        source = None if values is None else self._type.source(values)
        sizes = None if lens is None else [int(size) for size in lens]
        self._native.respond(None if source is None else source.buffer, sizes)

    def refuse(self, reason: str) -> None:
        """Answers the request with an error: waiting for it raises PsRefused with this reason.

        Raises:
            PsError: it is answered already.
        """
        self._native.refuse(reason)


#: Handles a request: returns the values of a pull, ``(values, lens)``, None for a push, or LATER.
Handler = Callable[[Request], Any]


class KvServer:
    """An app of this server. It serves until the node ends, also if this object is dropped.

    Without a handler, pushed values are added up. A handler is called for one request at a time, on threads of the node,
    with the GIL. It returns

    - for a push: None;
    - for a pull, or a push and pull: the values, key by key, in any shape, or ``(values, lens)`` if the worker does not know
      how many each key has;
    - :data:`LATER` to answer later.

    An exception in the handler is logged by the logger ``elasticrun``, and the worker gets a PsRefused with its text.

    Args:
        dtype: type of the values, as for :class:`KvWorker`.
        handler: handles a request.
        app: number of the app.
        postoffice: the node; that which this process has started last by default.

    Raises:
        PsConfigError: the process has this app already.
        PsError: the process has no node.
        TypeError: ``dtype`` is no type of values.
    """

    def __init__(
        self,
        dtype: object = "float32",
        handler: Handler | None = None,
        app: int = 0,
        *,
        postoffice: Postoffice | None = None,
    ) -> None:
        self._type = ValueType(dtype)
        self._handler = handler
        call = None if handler is None else self._call
        self._native = PsServer(current(postoffice).native, self._type.code, app, call)

    def remove(self) -> None:
        """Takes the app away. Later requests wait for another one with its number."""
        self._native.remove()

    def _call(self, native: PsServerRequest) -> None:
        assert self._handler is not None, "it is called for a handler alone"
        request = Request(native, self._type)
        try:
            result = self._handler(request)
            if result is LATER:
                return
            values, lens = result if isinstance(result, tuple) else (result, None)
            request.respond(values, lens)
        except Exception as error:
            logging.getLogger("elasticrun").exception("the handler of %r failed", request)
            if not native.answered:
                request.refuse(f"{type(error).__name__}: {error}")
