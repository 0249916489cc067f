"""Serialises a state as a head, which is a pickle, and the memory of the arrays in it.

Arrays are not pickled. The head contains a reference to each array, and their memory follows it unchanged. A commit
therefore copies each array once, from its memory to the agent.

:func:`register` fills the table of array types, so this module imports no library. Coders of NumPy and JAX arrays are
imported on first use.

Only authenticated workers of one job exchange these pickles. The agent reads durable commits only from files that no other
user could have changed (``docs/durable-commits.md``). Data from other sources is never unpickled.
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
    "ArrayInfo",
    "Coder",
    "DescribingCoder",
    "OwnedPayload",
    "Payload",
    "Stored",
    "decode",
    "describe",
    "encode",
    "register",
]


@dataclass(frozen=True)
class Stored:
    """The memory of an array to store.

    Attributes:
        meta: picklable, small data that :meth:`Coder.decode` needs besides the memory.
        address: address of the first byte.
        nbytes: number of bytes.
        owner: object that keeps the memory alive.
        shared: whether arrays with the same coder, memory and meta are stored once. Their meta must be hashable.
    """

    meta: object
    address: int
    nbytes: int
    owner: object = field(repr=False)
    shared: bool = False


class Coder(Protocol):
    """Stores and restores arrays of one type."""

    def encode(self, array: Any) -> Stored | None:
        """The memory of ``array``; None to pickle it like any other object."""

    def decode(self, meta: Any, data: memoryview, live: Any | None) -> Any:
        """Restores an array. ``data`` is valid only during the call.

        If ``live`` fits, it is filled in place instead of creating a new array. ``live`` is an array that :meth:`encode`
        accepts, and is filled only once.
        """


@runtime_checkable
class DescribingCoder(Protocol):
    """A coder that describes arrays, so that the states of replicas can be compared."""

    def describe(self, meta: Any) -> tuple[str, bool]:
        """A readable type and shape of an array, and whether its values are the same in all replicas."""


@dataclass(frozen=True)
class ArrayInfo:
    """An array of an encoded state.

    Attributes:
        path: readable path of the array in the state.
        layout: its type and shape.
        replicated: whether its values are the same in all replicas.
        coder: coder that stored it.
        meta: data that :meth:`Coder.decode` needs.
        index: index of its buffer.
    """

    path: str
    layout: str
    replicated: bool
    coder: Any
    meta: object
    index: int


@dataclass(frozen=True)
class Payload:
    """A serialised state: ``head``, and the memory at each of ``buffers`` (address, bytes). ``owners`` keep the memory alive."""

    head: bytes
    buffers: list[tuple[int, int]]
    owners: list[object] = field(repr=False)

    def copy(self) -> OwnedPayload:
        """A copy that owns its memory."""
        return OwnedPayload(self.head, [_copied(address, nbytes) for address, nbytes in self.buffers])


@dataclass(frozen=True)
class OwnedPayload:
    """A payload that owns its memory. :meth:`views` gives the buffers that :func:`decode` takes."""

    head: bytes
    buffers: list[bytes] = field(repr=False)

    def views(self) -> list[memoryview]:
        """Views of the buffers, for reading."""
        return [memoryview(buffer) for buffer in self.buffers]


def _copied(address: int, nbytes: int) -> bytes:
    # ctypes.string_at() takes its length as a C int.
    return bytes((ctypes.c_char * nbytes).from_address(address)) if nbytes else b""


_CODERS: dict[type, tuple[str, Coder] | None] = {}
_BY_NAME: dict[str, Coder] = {}


def register(kind: type | None, name: str, coder: Coder) -> None:
    """Registers ``coder`` for objects whose type is exactly ``kind``.

    Stored states refer to the coder by ``name``, which must be the same in all workers. Without a ``kind`` the coder is
    registered by name only.
    """
    if kind is not None:
        _CODERS[kind] = (name, coder)
    _BY_NAME[name] = coder


def encode(value: object, excluded: Mapping[int, str] | None = None) -> Payload:
    """Serialises ``value`` without copying the memory of its arrays.

    Args:
        value: the value.
        excluded: attributes of a state that a handler stores, by ``id()``. No part of ``value`` may be one of these
            objects, because restoring it would create a copy of the object.

    Raises:
        StateError: a part of it cannot be serialised; the message names the part.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, excluded)
    try:
        pickler.dump(value)
    except Exception as error:
        path, part, why = _culprit(value, "", error, excluded or {})
        raise StateError(f"{path or 'the value'} ({type(part).__qualname__}) cannot be serialised: {why}") from error
    buffers = [(stored.address, stored.nbytes) for stored in pickler.stored]
    return Payload(file.getvalue(), buffers, [stored.owner for stored in pickler.stored])


def decode(head: bytes, buffers: Sequence[memoryview], live: object = None) -> Any:
    """Deserialises a value. It holds no reference to the memory of ``buffers``.

    ``live`` may be a value of the same structure. Its arrays that match the stored ones in order, type and shape are
    filled in place.

    Raises:
        StateError: a part cannot be restored in this process.
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


def describe(head: bytes) -> list[ArrayInfo]:
    """The arrays of a serialised state, in the order of their paths. Empty if the state cannot be parsed in this process."""
    found: list[ArrayInfo] = []
    try:
        _look_for(_Outliner(io.BytesIO(head)).load(), "", found, set())
    except Exception:
        # A user class may need its arrays while it is unpickled.
        return []
    return found


@dataclass(frozen=True)
class _ArrayReference:
    """A reference to an array, in place of the array itself."""

    name: str
    index: int
    meta: object


class _Outliner(pickle.Unpickler):
    """Unpickles a head with a reference in place of each array."""

    def persistent_load(self, pid: Any) -> Any:
        return _ArrayReference(*pid)


def _look_for(value: object, path: str, found: list[ArrayInfo], seen: set[int]) -> None:
    if isinstance(value, _ArrayReference):
        coder = _coder_named(value.name)
        if isinstance(coder, DescribingCoder):
            layout, replicated = coder.describe(value.meta)
            found.append(ArrayInfo(path, layout, replicated, coder, value.meta, value.index))
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    for name, part in _parts(value):
        _look_for(part, f"{path}{_step(value, name)}" if path else name, found, seen)


class _Pickler(pickle.Pickler):
    """Pickles a head with a reference in place of each array."""

    def __init__(self, file: io.BytesIO, excluded: Mapping[int, str] | None = None) -> None:
        super().__init__(file, protocol=5)
        self._excluded = excluded
        self._shared: dict[tuple[object, ...], tuple[str, int, object]] = {}
        self.stored: list[Stored] = []
        self.arrays: list[Any] = []
        self._seen: dict[int, tuple[str, int, object]] = {}

    def persistent_id(self, obj: Any) -> Any:
        if self._excluded and id(obj) in self._excluded:
            raise TypeError(
                f"it is {self._excluded[id(obj)]!r} of the state, which stays the object that it is, and this would become a"
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
    """Unpickles a head and restores its arrays, into those of ``reuse`` where they fit."""

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
    """The arrays of ``value`` in the order of :func:`encode`, with None for arrays that share memory."""
    pickler = _Pickler(io.BytesIO())
    try:
        pickler.dump(value)
    except Exception:
        # The value was changed since it was saved, and is about to be replaced.
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


#: Array types that need no registration, by root of their module and name, and the modules of their coders.
_KNOWN = {
    ("array", "array"): "buffer_coder",
    ("builtins", "bytearray"): "buffer_coder",
    ("builtins", "memoryview"): "buffer_coder",
    ("numpy", "ndarray"): "numpy_coder",
    ("jaxlib", "ArrayImpl"): "jax_coder",
}
#: The module that registers each built-in coder.
_MODULES = {
    "array": "buffer_coder",
    "bytearray": "buffer_coder",
    "memoryview": "buffer_coder",
    "numpy": "numpy_coder",
    "jax": "jax_coder",
    "dlpack": "dlpack_coder",
}


def _coder_of(kind: type) -> tuple[str, Coder] | None:
    """The coder of a type. It is looked up for each object of a state, so types without a coder are cached as well."""
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
    """The coder with a name. Imports a built-in one if this process has not used it yet."""
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
    excluded: Mapping[int, str],
    within: frozenset[int] = frozenset(),
) -> tuple[str, object, Exception]:
    """The innermost part of ``value`` that cannot be pickled by itself, and why."""
    within |= {id(value)}
    for name, part in _parts(value):
        if id(part) in within:
            continue
        try:
            _Pickler(io.BytesIO(), excluded).dump(part)
        except Exception as error:
            part_path = f"{path}{_step(value, name)}" if path else name
            if id(part) in excluded:
                return part_path, part, error
            return _culprit(part, part_path, error, excluded, within)
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
