"""A state of attributes, kept by the agent."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from .. import _native, codec, lifecycle
from ..codec import Kept, Payload
from ..errors import StateError
from .handlers import JointHandler, handler_of
from .replicas import Replicas
from .state import State

__all__ = ["ObjectState"]


class ObjectState(State):
    """Attributes by name: anything that can be pickled, arrays, and samplers.

        state = ObjectState(weights=weights, epoch=0, sampler=ElasticSampler(1000))

    The attributes given here are the state; others can be set, but are this process's own. They are copied at
    each commit, so what is changed in place afterwards is rolled back as well. A restored attribute is a new
    object; a sampler (or what else has a :class:`~elasticrun.elastic.Handler`) stays the same one.

    Memory of arrays is copied as it is, once; the rest is pickled. Workers of one job exchange pickles, and
    take them from nobody else.

    A state is replicated. Workers may differ in what does not matter for that (a random generator's state, statistics
    of a local batch); then all go on with what rank 0 committed. But if the arrays of two workers differ in type or shape, or
    parameters of a model in their values by more than rounding, then they are no replicas (stages of a pipeline,
    shards of a tensor), and the next round begins with a StateError that names the first array that differs.

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
        #: At the start of a round, until sync(): whether reset callbacks have changed the state.
        self._fresh: bool | None = None
        for name, value in attributes.items():
            if name.startswith("_") or hasattr(State, name):
                raise StateError(f"an attribute of a state cannot be called {name!r}: choose another name")
            setattr(self, name, value)
        self.save()

    def save(self) -> None:
        """Keeps a copy of all attributes in this process, until the next commit."""
        self._saved = self._payload().copy()

    def restore(self) -> None:
        """Goes back to what was saved or committed last by this process.

        Raises:
            StateError: it cannot be restored.
        """
        if self._saved is not None:
            self._load(self._saved.head, self._saved.views())
        elif not _native.newest(self._load):
            raise StateError("there is nothing to restore: nothing was saved or committed yet")

    def sync(self) -> None:
        """Brings all attributes of rank 0 to all workers. All call it.

        At the start of a round ``elastic.run`` does so by itself, and sends nothing if all have the same.
        """
        if self._fresh is not None:
            fresh, self._fresh = self._fresh, None
            _native.sync(self._head_and_buffers, self._load, fresh, Replicas())
            self._lent = None
            return
        self._broadcast()
        self.save()

    def reset(self) -> None:
        """Adapts samplers, and what else has a handler, to the new world."""
        self._adapt()

    def _hooks(self) -> tuple[bool, bool, bool]:
        callbacks = bool(self._reset_callbacks) or self._overrides("reset", "on_reset")
        return callbacks, self._overrides("restore"), False

    def _restore_newest(self) -> None:
        if _native.newest(self._load):
            # What the constructor saved is no progress: an interrupted first sync is not taken for one.
            self._saved = None
        else:
            self.restore()

    def _sync_to_base(self, *, fresh: bool) -> None:
        self._fresh = fresh
        try:
            self.sync()
            if self._fresh is not None:
                # The user's own sync(), which does not call ours.
                ObjectState.sync(self)
        finally:
            self._fresh = None
        # The commit that the round began with is newer.
        self._saved = None

    def _enter_round(self) -> None:
        self._adapt()
        for handler, value in self._joint():
            handler.enter(value)

    def _agree(self) -> None:
        for handler, value in self._joint():
            handler.agree(value)

    def _committed(self) -> None:
        for handler, value in self._joint():
            handler.committed(value)

    def _keep(self) -> None:
        if self._overrides("save"):
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

    def _joint(self) -> Iterator[tuple[JointHandler, Any]]:
        """What workers keep together, in an order that is the same in all."""
        for name in self._names:
            value = getattr(self, name)
            handler = handler_of(value)
            if isinstance(handler, JointHandler):
                yield handler, value

    def _payload(self) -> Payload:
        return codec.encode(self._captured(), self._apart())

    def _apart(self) -> dict[int, str]:
        """The attributes that stay the objects that they are: no other attribute may hold them."""
        values = ((name, getattr(self, name)) for name in self._names)
        return {id(value): name for name, value in values if handler_of(value) is not None}

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

    def _overrides(self, *methods: str) -> bool:
        """Whether one of ``methods`` is the user's own, which may do more than ours."""
        owners = (getattr(type(self), method).__module__ for method in methods)
        return any(owner.partition(".")[0] != __package__.partition(".")[0] for owner in owners)
