"""The worker's side: push and pull."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from .._native import PsRequest, PsWorker
from ..errors import PsError
from .arrays import Source, ValueType, keys_of, lens_of
from .handle import Handle
from .node import Postoffice, current

__all__ = ["KvWorker"]

#: Is called with the error of a request, or None.
Callback = Callable[[Exception | None], object]


class KvWorker:
    """Pushes and pulls the values of an app.

    Keys are integers from 0 to 2**64 - 1, strictly ascending in each request. ``uint64`` arrays, and ``int64`` ones without
    negative keys, are not copied. Each server serves an equal range of *all* keys, so spread small ones.

    Arrays and tensors that are passed are not copied if they are contiguous. They are kept alive, and **may be written again
    once the request is completed**: when :meth:`Handle.wait` has returned or raised, :meth:`Handle.poll` is true or its
    callback is called.

    A request sees the effect of earlier ones of this worker to the same server, if they have the same priority and
    ``PS_RESEND`` is off.

    Args:
        dtype: type of the values, of NumPy or torch or as a name: float32, float64, float16, bfloat16, and integers of 8 to
            64 bits.
        app: number of the app. The servers must have one with this number and type.
        customer: number of this user of the app in this process.
        postoffice: the node; that which this process has started last by default.

    Raises:
        PsConfigError: the process has this app and customer already.
        PsError: the process has no node.
        TypeError: ``dtype`` is no type of values.
    """

    def __init__(
        self, dtype: object = "float32", app: int = 0, customer: int = 0, *, postoffice: Postoffice | None = None
    ) -> None:
        self._type = ValueType(dtype)
        self._postoffice = current(postoffice)
        self._native = PsWorker(self._postoffice.native, self._type.code, app, customer)

    @property
    def postoffice(self) -> Postoffice:
        """The node."""
        return self._postoffice

    @property
    def dtype(self) -> str:
        """NumPy's name of the type of the values."""
        return self._type.name

    def push(
        self,
        keys: Any,
        values: Any,
        *,
        lens: Any = None,
        cmd: int = 0,
        priority: int = 0,
        callback: Callback | None = None,
    ) -> Handle[None]:
        """Adds values to those of the servers, or gives them to their handler. Returns at once.

        It waits while more than ``ELASTICRUN_PS_SEND_BUFFER`` bytes wait to be sent to a server.

        Args:
            keys: n keys.
            values: n * k values of this worker's type, in any shape: k for each key, key by key.
            lens: how many values each key has, if they differ: n numbers whose sum is the number of values.
            cmd: a number for the handler.
            priority: requests of higher priority overtake others that wait to be sent.
            callback: is called once with the error or None when the request is completed, on a thread of the node or one
                that waits. It must not wait for other requests.

        Raises:
            PsBadRequest: keys are not sorted, or repeated, or the numbers of keys, lens and values do not fit.
            PsNodeLost: a server is dead.
            PsTimeout: too much waits to be sent, for too long.
            TypeError: the values are of another type.
        """
        sources = (keys_of(keys), self._type.source(values), None if lens is None else lens_of(lens))
        head, body, sizes = sources
        native = self._native.push(head.buffer, body.buffer, _buffer(sizes), (cmd, priority, callback), _keep(sources))
        return Handle(native, lambda: None)

    def pull(
        self,
        keys: Any,
        out: Any = None,
        *,
        per_key: int = 1,
        lens: Any = None,
        cmd: int = 0,
        priority: int = 0,
        callback: Callback | None = None,
    ) -> Handle[Any]:
        """Reads the values of keys. Keys that were never pushed have zeros. Returns at once.

        The result of :meth:`Handle.wait` is ``out``, or a new tensor if the keys are one, or a new array. Answers are
        received straight into it. Do not use ``out`` before the request is completed; if it has failed, an answer that comes
        late may still change it while the handle is there.

        Args:
            keys: n keys.
            out: a contiguous array or tensor of as many elements as the result, in any shape.
            per_key: number of values of each key, k. A new result has the shape (n,) for 1 and (n, k) otherwise.
            lens: how many values each key has, if they differ: n numbers. A new result has the shape (sum of lens,).
            cmd, priority, callback: as for :meth:`push`.

        Raises:
            PsBadRequest, PsNodeLost, PsTimeout: as for :meth:`push`.
            TypeError: ``out`` is of another type.
            ValueError: ``out`` has another number of elements, or is not contiguous.
        """
        head = keys_of(keys)
        sizes = None if lens is None else lens_of(lens)
        shape = _shape(head.count, per_key, sizes)
        target = self._type.target(out, keys, shape, _product(shape))
        native = self._native.pull(
            head.buffer,
            per_key,
            _buffer(sizes),
            target.buffer,
            (cmd, priority, callback),
            _keep((head, sizes, target)),
        )
        return Handle(native, lambda: target.array)

    def pull_mixed(
        self, keys: Any, *, cmd: int = 0, priority: int = 0, callback: Callback | None = None
    ) -> Handle[tuple[Any, Any]]:
        """Reads the values of keys, of whose numbers only the servers know. All keys must have been pushed. Returns at once.

        The result is ``(values, lens)``, two NumPy arrays: the values, key by key, and how many each key has, as ``uint32``.
        They are copied once.

        Args:
            keys: n keys.
            cmd, priority, callback: as for :meth:`push`.

        Raises:
            PsBadRequest, PsNodeLost, PsTimeout: as for :meth:`push`. Waiting raises PsRefused for a key that was never pushed.
        """
        head = keys_of(keys)
        native = self._native.pull(head.buffer, None, None, None, (cmd, priority, callback), _keep((head,)))
        return Handle(native, lambda: self._received(native, head.count))

    def push_pull(
        self,
        keys: Any,
        values: Any,
        out: Any = None,
        *,
        lens: Any = None,
        cmd: int = 0,
        priority: int = 0,
        callback: Callback | None = None,
    ) -> Handle[Any]:
        """Adds values and reads the sums, in one request. Returns at once.

        Args:
            keys, values, lens, cmd, priority, callback: as for :meth:`push`.
            out: as for :meth:`pull`, but of as many elements as ``values``, whose shape a new result has. It must not be
                ``values``.

        Raises:
            PsBadRequest, PsNodeLost, PsTimeout, TypeError, ValueError: as for :meth:`push` and :meth:`pull`.
        """
        head, body = keys_of(keys), self._type.source(values)
        sizes = None if lens is None else lens_of(lens)
        target = self._type.target(out, values, tuple(body.array.shape), body.count)
        if target.buffer[0] == body.buffer[0] and body.count:
            raise ValueError("out is the same memory as values: the answer of one server may come before all is sent")
        native = self._native.push_pull(
            head.buffer,
            body.buffer,
            _buffer(sizes),
            target.buffer,
            (cmd, priority, callback),
            _keep((head, body, sizes, target)),
        )
        return Handle(native, lambda: target.array)

    def wait(self, handle: Handle[Any]) -> Any:
        """Waits for a request: :meth:`Handle.wait`."""
        return handle.wait()

    def _received(self, native: PsRequest, count: int) -> tuple[Any, Any]:
        taken = native.take()
        if taken is None:
            raise PsError("the values of this request were taken before")
        values, lens = taken
        received = self._type.received(values)
        if lens is not None:
            return received, numpy.frombuffer(lens, numpy.uint32)
        return received, numpy.full(count, len(received) // count, numpy.uint32)


def _buffer(source: Source | None) -> tuple[int, int] | None:
    return None if source is None else source.buffer


def _keep(sources: tuple[Source | None, ...]) -> list[Any]:
    return [source.array for source in sources if source is not None]


def _shape(count: int, per_key: int, lens: Source | None) -> tuple[int, ...]:
    if lens is not None:
        return (int(lens.array.sum(dtype=numpy.int64)),)
    if per_key < 0:
        raise ValueError(f"per_key={per_key}: expected 0 or more")
    return (count,) if per_key == 1 else (count, per_key)


def _product(shape: tuple[int, ...]) -> int:
    return shape[0] if len(shape) == 1 else shape[0] * shape[1]
