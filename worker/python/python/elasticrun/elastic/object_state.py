"""A state of attributes, kept by the agent."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .. import _native, codec, lifecycle
from ..codec import Kept, Payload
from ..errors import StateError
from .handlers import handler_of
from .state import State

__all__ = ["ObjectState"]

F = TypeVar("F", bound=Callable[..., Any])


def _ours(method: F) -> F:
    """Marks a method that the loop need not call, since it does the same in a shorter way."""
    method.__dict__["elasticrun_own"] = True
    return method


class ObjectState(State):
    """Attributes by name: anything that can be pickled, arrays, and samplers.

        state = ObjectState(weights=weights, epoch=0, sampler=ElasticSampler(1000))

    The attributes given here are the state; others can be set, but are this process's own. They are copied at
    each commit, so what is changed in place afterwards is rolled back as well. A restored attribute is a new
    object; a sampler (or what else has a :class:`~elasticrun.elastic.Handler`) stays the same one.

    Memory of arrays is copied as it is, once; the rest is pickled. Workers of one job exchange pickles, and
    take them from nobody else.

    Raises:
        StateError: an attribute cannot be serialised, or has the name of a method.
    """

    if TYPE_CHECKING:
        # The attributes of a state are those that its user gives.
        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    #: Whether arrays are filled in place when the state is restored.
    _in_place = False

    def __init__(self, **attributes: object) -> None:
        super().__init__()
        self._names = tuple(attributes)
        self._saved: Kept | None = None
        self._round_begins = False
        for name, value in attributes.items():
            if name.startswith("_") or hasattr(State, name):
                raise StateError(
                    f"an attribute of a state cannot be called {name!r}: choose another name"
                )
            setattr(self, name, value)
        self.save()

    @_ours
    def save(self) -> None:
        """Keeps a copy of all attributes in this process, until the next commit."""
        self._saved = self._payload().copy()

    @_ours
    def restore(self) -> None:
        """Goes back to what was saved or committed last by this process.

        Raises:
            StateError: it cannot be restored.
        """
        if self._saved is not None:
            self._load(self._saved.head, self._saved.views())
        elif not _native.newest(self._load):
            raise StateError("there is nothing to restore: nothing was saved or committed yet")

    @_ours
    def sync(self) -> None:
        """Brings all attributes of rank 0 to all workers. All call it.

        At the start of a round ``elastic.run`` does so by itself, and sends nothing if all have the same.
        """
        if self._round_begins:
            self._round_begins = False
            _native.sync(self._head_and_buffers, self._load)
            self._lent = None
            return
        self._broadcast()
        self.save()

    def reset(self) -> None:
        """Adapts samplers, and what else has a handler, to the new world."""
        self._adapt()

    def _begin_round(self) -> None:
        self._commits = 0
        self._round_begins = True
        try:
            self.sync()
            if self._round_begins:
                # The user's own sync(), which does not call ours.
                ObjectState.sync(self)
        finally:
            self._round_begins = False
        # The commit that the round began with is newer.
        self._saved = None
        self._adapt()

    def _failed(self) -> None:
        # The next round restores by itself. A user's own restore() may do more.
        if not _is_ours(self, "restore"):
            self.restore()

    def _keep(self) -> None:
        if not _is_ours(self, "save"):
            self.save()

    def _seal(self) -> None:
        super()._seal()
        self._saved = None

    def _adapt(self) -> None:
        for name in self._names:
            value = getattr(self, name)
            handler = handler_of(value)
            if handler is not None:
                handler.reset(value)

    def _payload(self) -> Payload:
        return codec.encode(self._captured())

    def _load(self, head: bytes, buffers: Sequence[memoryview]) -> None:
        live = self._captured() if self._in_place else None
        stored = codec.decode(head, buffers, live)
        if not isinstance(stored, dict) or tuple(stored) != self._names:
            raise StateError(
                f"the state has the attributes {list(stored)}, that of this worker {list(self._names)}:"
                " do all workers run the same program?"
            )
        for name, part in stored.items():
            value = getattr(self, name)
            handler = handler_of(value)
            setattr(self, name, part if handler is None else handler.restore(value, part))

    def _broadcast(self) -> None:
        """As the start of a round does, in the midst of one."""
        name = f"{type(self).__qualname__}.sync"
        lane = lifecycle.lane(name)
        own = None
        if lane.rank == 0:
            own = pickle.dumps(self._payload().copy(), protocol=5)
        work = lane.broadcast_bytes(own, 0, name)
        work.wait()
        if own is None:
            received: Kept = pickle.loads(cast(bytes, work.result()))
            self._load(received.head, received.views())

    def _captured(self) -> dict[str, object]:
        captured = {}
        for name in self._names:
            value = getattr(self, name)
            handler = handler_of(value)
            captured[name] = value if handler is None else handler.capture(value)
        return captured


def _is_ours(state: State, method: str) -> bool:
    return "elasticrun_own" in getattr(type(state), method).__dict__
