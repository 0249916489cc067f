"""A state of attributes, whose commits the agent stores."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from .. import _native, codec, lifecycle
from ..codec import OwnedPayload, Payload
from ..errors import StateError
from .handlers import JointHandler, handler_of
from .replicas import Replicas
from .state import State

__all__ = ["ObjectState"]


class ObjectState(State):
    """Attributes by name: anything that can be pickled, arrays, and samplers.

        state = ObjectState(weights=weights, epoch=0, sampler=ElasticSampler(1000))

    The attributes passed here are the state. Other attributes can be set, but are local to this process. Each commit copies
    the state, so a restore also reverts changes made in place. A restored attribute is a new object. A sampler, or any
    other object with a :class:`~elasticrun.elastic.Handler`, stays the same object.

    The memory of arrays is copied once, unchanged; the rest is pickled. Workers accept pickles only from other workers of
    the same job.

    A state is replicated. Workers may differ in details such as the state of a random generator or statistics of a local
    batch; all then continue with the commit of rank 0. Workers are not replicas if arrays differ in type or shape, or
    parameters of a model differ by more than rounding (stages of a pipeline, shards of a tensor). The next round then
    begins with a StateError that names the first array that differs.

    Raises:
        StateError: an attribute cannot be serialised, or its name is that of a method.
    """

    if TYPE_CHECKING:
        # The user chooses the attributes of a state.
        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    #: Whether a restore fills arrays in place.
    _in_place = False

    def __init__(self, **attributes: object) -> None:
        super().__init__()
        self._names = tuple(attributes)
        self._saved: OwnedPayload | None = None
        #: Whether reset callbacks have changed the state; None except from the start of a round to its sync().
        self._fresh: bool | None = None
        for name, value in attributes.items():
            if name.startswith("_") or hasattr(State, name):
                raise StateError(f"an attribute of a state cannot be called {name!r}: choose another name")
            setattr(self, name, value)
        self.save()

    def save(self) -> None:
        """Copies all attributes in this process. The next commit supersedes the copy."""
        self._saved = self._payload().copy()

    def restore(self) -> None:
        """Restores the last save or commit of this process.

        Raises:
            StateError: nothing was saved yet, or the state cannot be restored.
        """
        if self._saved is not None:
            self._load(self._saved.head, self._saved.views())
        elif not _native.with_newest_commit(self._load):
            raise StateError("there is nothing to restore: nothing was saved or committed yet")

    def sync(self) -> None:
        """Copies all attributes of rank 0 to all workers. All workers call it.

        ``elastic.run`` does so at the start of a round, and sends nothing if all workers have the same state.
        """
        if self._fresh is not None:
            fresh, self._fresh = self._fresh, None
            _native.sync(self._head_and_buffers, self._load, fresh, Replicas())
            self._payload_in_use = None
            return
        self._broadcast()
        self.save()

    def reset(self) -> None:
        """Adapts samplers and other attributes with a handler to the members of the round."""
        self._adapt()

    def _hooks(self) -> tuple[bool, ...]:
        callbacks = bool(self._reset_callbacks) or self._overrides("reset", "on_reset")
        return callbacks, self._overrides("restore"), False

    def _restore_newest(self) -> None:
        if _native.with_newest_commit(self._load):
            # The constructor's save contains no progress, so a first sync that was interrupted must not restore it.
            self._saved = None
        else:
            self.restore()

    def _sync_to_base(self, *, fresh: bool) -> None:
        self._fresh = fresh
        try:
            self.sync()
            if self._fresh is not None:
                # A user's sync() need not call this class's.
                ObjectState.sync(self)
        finally:
            self._fresh = None
        # The base of the round is newer.
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

    def _save_locally(self) -> None:
        if self._overrides("save"):
            self.save()

    def _write_commit(self) -> None:
        super()._write_commit()
        self._saved = None

    def _adapt(self) -> None:
        for name in self._names:
            value = getattr(self, name)
            handler = handler_of(value)
            if handler is not None:
                handler.reset(value)

    def _joint(self) -> Iterator[tuple[JointHandler, Any]]:
        """Attributes with a joint handler, in the same order in all workers."""
        for name in self._names:
            value = getattr(self, name)
            handler = handler_of(value)
            if isinstance(handler, JointHandler):
                yield handler, value

    def _payload(self) -> Payload:
        return codec.encode(self._captured(), self._handled())

    def _handled(self) -> dict[int, str]:
        """Names by ``id()`` of attributes with a handler, to which no other attribute may refer."""
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
        """Copies the state of rank 0 to all workers within a round."""
        name = f"{type(self).__qualname__}.sync"
        queue = lifecycle.collective_queue(name)
        sent = None
        if queue.rank == 0:
            sent = pickle.dumps(self._payload().copy(), protocol=5)
        work = queue.broadcast_bytes(sent, 0, name)
        work.wait()
        if sent is None:
            received: OwnedPayload = pickle.loads(cast(bytes, work.result()))
            self._load(received.head, received.views())

    def _captured(self) -> dict[str, object]:
        captured = {}
        for name in self._names:
            value = getattr(self, name)
            handler = handler_of(value)
            captured[name] = value if handler is None else handler.capture(value)
        return captured

    def _overrides(self, *methods: str) -> bool:
        """Whether the user has overridden one of ``methods``."""
        owners = (getattr(type(self), method).__module__ for method in methods)
        return any(owner.partition(".")[0] != __package__.partition(".")[0] for owner in owners)
