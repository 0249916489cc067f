"""The schema and the indexes of a Petastorm data set, from pickles that are parsed and never executed.

A pickle names classes and functions and calls them. Here each name is replaced by a plain record (:class:`_Record`), whose calls
only store their arguments. Only the names in Petastorm's own pickles are allowed, and any other name is an error. So a foreign or
malicious pickle causes an error and nothing else.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ... import _native
from ...errors import DataError

__all__ = ["Codec", "Field", "Index", "MetadataError", "read_indexes", "read_schema"]

_SCHEMA = "dataset-toolkit.unischema.v1"
_INDEXES = "dataset-toolkit.rowgroups_index.v1"
_FILE = "_common_metadata"


class MetadataError(DataError):
    """Petastorm's metadata of a data set cannot be read."""


@dataclass(frozen=True)
class Codec:
    """How the values of a field are stored."""

    #: "ScalarCodec", "NdarrayCodec", "CompressedNdarrayCodec" or "CompressedImageCodec".
    name: str
    #: For images: "png" or "jpeg".
    image: str | None = None


@dataclass(frozen=True)
class Field:
    """A field of a schema."""

    name: str
    #: Name of the NumPy type, such as "float32"; "Decimal" for decimal numbers.
    dtype: str
    #: Sizes, with None for any size. ``()`` is a scalar.
    shape: tuple[int | None, ...]
    #: None for values that are stored directly.
    codec: Codec | None
    nullable: bool


@dataclass(frozen=True)
class Index:
    """The row groups that hold a value of a column, by their numbers in Petastorm's order."""

    column: str
    #: By value; None for an index that only records the presence of values.
    values: dict[Any, frozenset[int]] | None
    #: The row groups with any value.
    groups: frozenset[int]


def read_schema(paths: Sequence[str], storage_options: Mapping[str, str] | None = None) -> tuple[Field, ...] | None:
    """The fields of a Petastorm data set, in the order of its schema; None for other data sets.

    Raises:
        MetadataError: the schema cannot be read.
    """
    pickled = _native.note(list(paths), _FILE, _SCHEMA, storage_options)
    if pickled is None:
        return None
    try:
        state = _load(pickled).state
        return tuple(_field(given) for given in state["_fields"].values())
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise MetadataError(f"{paths[0]}: {_FILE}: the schema is not as Petastorm writes it ({error})") from error


def read_indexes(paths: Sequence[str], storage_options: Mapping[str, str] | None = None) -> dict[str, Index]:
    """The row group indexes by name; may be empty.

    Raises:
        MetadataError: they cannot be read.
    """
    pickled = _native.note(list(paths), _FILE, _INDEXES, storage_options)
    if pickled is None:
        return {}
    try:
        return {str(name): _index(given) for name, given in _load(pickled).items()}
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise MetadataError(f"{paths[0]}: {_FILE}: the indexes are not as Petastorm writes them ({error})") from error


class _Record:
    """An object in a pickle: the arguments of its constructor, and its state."""

    module: str = ""
    name: str = ""

    def __new__(cls, *arguments: Any) -> _Record:
        made = super().__new__(cls)
        made.arguments = arguments
        made.state = {}
        made.entries = {}
        return made

    # Set by __new__, and not by the pickle.
    arguments: tuple[Any, ...]
    state: dict[str, Any]
    entries: dict[Any, Any]

    def __init__(self, *arguments: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state if isinstance(state, dict) else {"": state}

    def __setitem__(self, key: Any, value: Any) -> None:
        self.entries[key] = value

    def __hash__(self) -> int:
        return hash((self.module, self.name, self.arguments))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Record) and (self.module, self.name, self.arguments) == (
            other.module,
            other.name,
            other.arguments,
        )


_UNISCHEMA = ("petastorm.unischema", "Unischema")
_FIELD = ("petastorm.unischema", "UnischemaField")
_CODECS = ("ScalarCodec", "NdarrayCodec", "CompressedNdarrayCodec", "CompressedImageCodec")
_INDEXERS = ("SingleFieldIndexer", "FieldNotNullIndexer")
#: Modules of which any name is allowed, since it only names a type.
_TYPES = ("numpy", "pyspark.sql.types")
_KNOWN = {
    _UNISCHEMA,
    _FIELD,
    ("decimal", "Decimal"),
    ("builtins", "set"),
    ("__builtin__", "set"),
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("copy_reg", "_reconstructor"),
    ("copyreg", "_reconstructor"),
    ("builtins", "object"),
    ("__builtin__", "object"),
    *(("petastorm.codecs", name) for name in _CODECS),
    *(("petastorm.etl.rowgroup_indexers", name) for name in _INDEXERS),
}
#: Former names of Petastorm's modules.
_RENAMED = ("av.experimental.deepdrive.dataset_toolkit", "av.ml.dataset_toolkit", "dataset_toolkit")


class _Reader(pickle.Unpickler):
    """Replaces each allowed name by a class of records."""

    def __init__(self, pickled: bytes) -> None:
        super().__init__(io.BytesIO(pickled), encoding="latin-1")
        self._classes: dict[tuple[str, str], Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        for renamed in _RENAMED:
            if module == renamed or module.startswith(renamed + "."):
                module = "petastorm" + module.removeprefix(renamed)
        known = (module, name) in _KNOWN or (module in _TYPES and name.isidentifier())
        if not known:
            raise MetadataError(
                f"{_FILE}: the pickle names {module}.{name}, which is none of Petastorm's: it is not read"
            )
        if name == "_reconstructor":
            return _reconstruct
        if name == "OrderedDict":
            return dict
        if name == "set":
            return _set
        made = self._classes.get((module, name))
        if made is None:
            made = type(name, (_Record,), {"module": module, "name": name})
            self._classes[module, name] = made
        return made

    def persistent_load(self, identity: Any) -> Any:
        raise MetadataError(f"{_FILE}: the pickle refers to {identity!r} outside of itself: it is not read")


def _reconstruct(kind: Any, base: Any, state: Any) -> Any:
    """How older pickles create objects: from a class, without arguments."""
    if not (isinstance(kind, type) and issubclass(kind, _Record)):
        raise ValueError("an object of no class")
    return kind() if state is None else kind(*state)


def _set(members: Any = ()) -> frozenset[Any]:
    return frozenset(members)


def _load(pickled: bytes) -> Any:
    try:
        return _Reader(pickled).load()
    except MetadataError:
        raise
    except Exception as error:
        raise MetadataError(f"{_FILE}: the pickle cannot be read ({error})") from error


def _field(given: Any) -> Field:
    # A field is a named tuple, so its arguments are its parts.
    name, kind, shape, codec, nullable = (*given.arguments, None, False)[:5]
    return Field(str(name), _type_name(kind), tuple(shape or ()), _codec(codec), bool(nullable))


def _type_name(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, _Record):
        return kind.name
    if isinstance(kind, _Record) and kind.name == "dtype":
        return str(kind.arguments[0])
    raise ValueError(f"{kind!r} is no type")


def _codec(given: Any) -> Codec | None:
    if given is None:
        return None
    if given.name not in _CODECS:
        raise ValueError(f"{given.name} is no codec")
    image = given.state.get("_image_codec") or given.state.get("_format")
    return Codec(given.name, str(image).lstrip(".") if image else None)


def _index(given: Any) -> Index:
    data, column = given.state["_index_data"], str(given.state["_column_name"])
    if given.name == "FieldNotNullIndexer":
        return Index(column, None, frozenset(_numbers(data)))
    values = {_value(value): frozenset(_numbers(groups)) for value, groups in data.entries.items()}
    return Index(column, values, frozenset().union(*values.values()))


def _numbers(groups: Any) -> Iterator[int]:
    return (int(group) for group in groups)


def _value(given: Any) -> Any:
    """A value of an index: a plain value, or a NumPy scalar as its type and its bytes."""
    if not isinstance(given, _Record):
        return given
    import numpy as np

    kind, content = given.arguments
    if isinstance(content, str):
        content = content.encode("latin-1")
    return cast("Any", np.frombuffer(content, dtype=_type_name(kind))[0].item())
