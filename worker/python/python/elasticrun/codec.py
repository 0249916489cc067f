"""From a state to bytes and back: a head, which is a pickle, and the memory of the arrays in it.

Arrays are not pickled: the head has a reference in their place, and their memory goes beside it as it is, so
a commit copies it once, from the array to the agent.

Which types are arrays is a table (:func:`register`), so this module imports no library. NumPy and JAX arrays
are known by themselves.

Pickles cross from worker to worker of one job only, which have proved to each other that they belong to it;
nothing is ever unpickled that came from elsewhere.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from .errors import StateError

__all__ = [
    "Coder",
    "Described",
    "Describes",
    "Kept",
    "Payload",
    "Stored",
    "decode",
    "describe",
    "encode",
    "register",
]


@dataclass(frozen=True)
class Stored:
    """The memory of an array that is to be stored.

    Attributes:
        meta: what :meth:`Coder.decode` needs beside the memory; small, and can be pickled.
        address: of the first byte.
        nbytes: bytes.
        owner: what keeps the memory alive.
        shared: whether it may stand for another one of the same coder, memory and meta, which can be hashed then.
    """

    meta: object
    address: int
    nbytes: int
    owner: object = field(repr=False)
    shared: bool = False


class Coder(Protocol):
    """How arrays of one type are stored."""

    def encode(self, array: Any) -> Stored | None:
        """The memory of ``array``; none if it is to be pickled like any object."""

    def decode(self, meta: Any, data: memoryview, live: Any | None) -> Any:
        """The array again. ``data`` is valid only during the call.

        ``live`` is the array to fill instead of making a new one, if it fits; it is one that :meth:`encode`
        takes, and nobody else fills it.
        """


@runtime_checkable
class Describes(Protocol):
    """A coder that tells what replicas of a state have in common."""

    def describe(self, meta: Any) -> tuple[str, bool]:
        """Type and shape of an array, for people; and whether its values are the same in all replicas."""


@dataclass(frozen=True)
class Described:
    """An array of an encoded state.

    Attributes:
        path: where in the state it is, for people.
        layout: its type and shape.
        replicated: whether its values are the same in all replicas.
        coder: what made it.
        meta: what :meth:`Coder.decode` needs.
        index: of its buffer.
    """

    path: str
    layout: str
    replicated: bool
    coder: Any
    meta: object
    index: int


@dataclass(frozen=True)
class Payload:
    """A state as bytes: ``head``, and the memory at each of ``buffers`` (address, bytes)."""

    head: bytes
    buffers: list[tuple[int, int]]
    owners: list[object] = field(repr=False)

    def copy(self) -> Kept:
        """A copy of all of it, of its own."""
        return Kept(self.head, [_copied(address, nbytes) for address, nbytes in self.buffers])


@dataclass(frozen=True)
class Kept:
    """A payload in memory of its own: what :func:`decode` takes, apart from the views."""

    head: bytes
    buffers: list[bytes] = field(repr=False)

    def views(self) -> list[memoryview]:
        """The buffers, to be read."""
        return [memoryview(buffer) for buffer in self.buffers]


def _copied(address: int, nbytes: int) -> bytes:
    # ctypes.string_at() takes its length as a C int.
    return bytes((ctypes.c_char * nbytes).from_address(address)) if nbytes else b""


_CODERS: dict[type, tuple[str, Coder] | None] = {}
_BY_NAME: dict[str, Coder] = {}


def register(kind: type | None, name: str, coder: Coder) -> None:
    """Has objects that are exactly of type ``kind`` stored by ``coder``.

    ``name`` stands for the coder in what is stored, so it is the same in all workers. Without a ``kind`` it is
    only known by its name.
    """
    if kind is not None:
        _CODERS[kind] = (name, coder)
    _BY_NAME[name] = coder


def encode(value: object, apart: Mapping[int, str] | None = None) -> Payload:
    """The bytes of ``value``, without a copy of the memory of its arrays.

    Args:
        value: the value.
        apart: attributes of a state that are kept in another way, by ``id()``: objects that must not be part of
            ``value``, since a copy of them would not be what they are.

    Raises:
        StateError: a part of it cannot be serialised; the message names the part.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, apart)
    try:
        pickler.dump(value)
    except Exception as error:
        path, part, why = _culprit(value, "", error, apart or {})
        raise StateError(f"{path or 'the value'} ({type(part).__qualname__}) cannot be serialised: {why}") from error
    buffers = [(stored.address, stored.nbytes) for stored in pickler.stored]
    return Payload(file.getvalue(), buffers, [stored.owner for stored in pickler.stored])


def decode(head: bytes, buffers: Sequence[memoryview], live: object = None) -> Any:
    """What was encoded. Nothing of it looks at the memory of ``buffers`` afterwards.

    ``live`` may be a value like it: its arrays that are of the type and shape of those stored, in the same
    order, are filled in place.

    Raises:
        StateError: a part of it cannot be made here.
    """
    reuse = _fillable(live) if live is not None else []
    try:
        return _Unpickler(io.BytesIO(head), buffers, reuse).load()
    except StateError:
        raise
    except Exception as error:
        raise StateError(
            f"the state cannot be restored ({type(error).__name__}: {error}): do all workers run the same program?"
        ) from error


def describe(head: bytes) -> list[Described]:
    """The arrays of an encoded state, in the order of their places. None if the state cannot be taken apart here."""
    found: list[Described] = []
    try:
        _look_for(_Outliner(io.BytesIO(head)).load(), "", found, set())
    except Exception:
        # A class of the user's that wants its arrays at once.
        return []
    return found


@dataclass(frozen=True)
class _Place:
    """What stands for an array in an outline."""

    name: str
    index: int
    meta: object


class _Outliner(pickle.Unpickler):
    """Leaves references to arrays as they are."""

    def persistent_load(self, pid: Any) -> Any:
        return _Place(*pid)


def _look_for(value: object, path: str, found: list[Described], seen: set[int]) -> None:
    if isinstance(value, _Place):
        coder = _coder_named(value.name)
        if isinstance(coder, Describes):
            layout, replicated = coder.describe(value.meta)
            found.append(Described(path, layout, replicated, coder, value.meta, value.index))
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    for name, part in _parts(value):
        _look_for(part, f"{path}{_step(value, name)}" if path else name, found, seen)


class _Pickler(pickle.Pickler):
    """Puts references in the place of arrays."""

    def __init__(self, file: io.BytesIO, apart: Mapping[int, str] | None = None) -> None:
        super().__init__(file, protocol=5)
        self._apart = apart
        self._shared: dict[tuple[object, ...], tuple[str, int, object]] = {}
        self.stored: list[Stored] = []
        self.arrays: list[Any] = []
        self._seen: dict[int, tuple[str, int, object]] = {}

    def persistent_id(self, obj: Any) -> Any:
        if self._apart and id(obj) in self._apart:
            raise TypeError(
                f"it is {self._apart[id(obj)]!r} of the state, which stays the object that it is, and this would become a"
                " copy of it: give what is to be kept, such as its state_dict()"
            )
        coder = _coder_of(type(obj))
        if coder is None:
            return None
        seen = self._seen.get(id(obj))
        if seen is not None:
            return seen
        name, how = coder
        stored = how.encode(obj)
        if stored is None:
            return None
        key = (name, stored.address, stored.nbytes, stored.meta) if stored.shared else None
        if key is not None and stored.nbytes and key in self._shared:
            return self._shared[key]
        reference = (name, len(self.stored), stored.meta)
        self._seen[id(obj)] = reference
        if key is not None:
            self._shared[key] = reference
        self.stored.append(stored)
        self.arrays.append(obj)
        return reference


class _Unpickler(pickle.Unpickler):
    """Makes the arrays that are referred to, or fills those of ``reuse``."""

    def __init__(self, file: io.BytesIO, buffers: Sequence[memoryview], reuse: list[Any]) -> None:
        super().__init__(file)
        self._buffers = buffers
        self._reuse = reuse
        self._made: dict[int, Any] = {}

    def persistent_load(self, pid: Any) -> Any:
        name, index, meta = pid
        if index not in self._made:
            coder = _coder_named(name)
            live = self._reuse[index] if index < len(self._reuse) else None
            self._made[index] = coder.decode(meta, self._buffers[index], live)
        return self._made[index]


def _fillable(value: object) -> list[Any]:
    """The arrays of ``value`` in the order of :func:`encode`; none in the place of those that share memory."""
    pickler = _Pickler(io.BytesIO())
    try:
        pickler.dump(value)
    except Exception:
        # It was changed since it was saved, and is about to be replaced anyway.
        return []
    arrays = pickler.arrays
    spans = sorted(
        (stored.address, stored.address + stored.nbytes, index)
        for index, stored in enumerate(pickler.stored)
        if stored.nbytes
    )
    highest, last = 0, -1
    for start, end, index in spans:
        if start < highest:
            arrays[index] = arrays[last] = None
        if end > highest:
            highest, last = end, index
    return arrays


#: Types that are known by themselves, by root of their module and name, and the module that knows them.
_KNOWN = {
    ("array", "array"): "buffer_coder",
    ("builtins", "bytearray"): "buffer_coder",
    ("builtins", "memoryview"): "buffer_coder",
    ("numpy", "ndarray"): "numpy_coder",
    ("jaxlib", "ArrayImpl"): "jax_coder",
}
#: The module that makes each coder of ours known.
_MODULES = {
    "array": "buffer_coder",
    "bytearray": "buffer_coder",
    "memoryview": "buffer_coder",
    "numpy": "numpy_coder",
    "jax": "jax_coder",
    "dlpack": "dlpack_coder",
}


def _coder_of(kind: type) -> tuple[str, Coder] | None:
    """Asked for each object of a state, so types without a coder are remembered, too."""
    try:
        return _CODERS[kind]
    except KeyError:
        module = _KNOWN.get((kind.__module__.partition(".")[0], kind.__name__))
        if module is not None:
            importlib.import_module(f"{__package__}.coders.{module}")
        elif hasattr(kind, "__dlpack__"):
            return _CODERS.setdefault(kind, ("dlpack", _coder_named("dlpack")))
        return _CODERS.setdefault(kind, None)


def _coder_named(name: str) -> Coder:
    """In a process that has not seen such an array yet, too."""
    if name not in _BY_NAME and name in _MODULES:
        importlib.import_module(f"{__package__}.coders.{_MODULES[name]}")
    if name not in _BY_NAME:
        raise StateError(
            f"the state holds arrays of {name}, which this worker knows nothing of: import elasticrun.{name}"
        )
    return _BY_NAME[name]


def _culprit(
    value: object,
    path: str,
    why: Exception,
    apart: Mapping[int, str],
    within: frozenset[int] = frozenset(),
) -> tuple[str, object, Exception]:
    """The innermost part of ``value`` that cannot be pickled by itself, and why."""
    within |= {id(value)}
    for name, part in _parts(value):
        if id(part) in within:
            continue
        try:
            _Pickler(io.BytesIO(), apart).dump(part)
        except Exception as error:
            at = f"{path}{_step(value, name)}" if path else name
            if id(part) in apart:
                return at, part, error
            return _culprit(part, at, error, apart, within)
    return path, value, why


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((str(index), part) for index, part in enumerate(value))
    elif hasattr(value, "__dict__") and not callable(value):
        yield from vars(value).items()


def _step(value: object, name: str) -> str:
    return f"[{name}]" if isinstance(value, (dict, list, tuple)) else f".{name}"
