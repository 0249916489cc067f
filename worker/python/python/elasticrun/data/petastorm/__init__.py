"""Data sets of Petastorm: their schema, codecs and row group indexes.

Petastorm stores its schema as a pickle in ``_common_metadata``. It is parsed without executing it (:mod:`.metadata`). Petastorm
need not be installed. Source: the behaviour of petastorm 0.13.1.
"""

from __future__ import annotations

from .codecs import decode
from .metadata import Codec, Field, Index, MetadataError, read_indexes, read_schema

__all__ = ["Codec", "Field", "Index", "MetadataError", "decode", "read_indexes", "read_schema"]
