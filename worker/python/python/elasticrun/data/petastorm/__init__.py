"""Data sets that Petastorm wrote: their schema, their codecs, their index of row groups.

Petastorm keeps its schema as a pickle in the data set's ``_common_metadata``. It is read without running anything that is in
it (:mod:`.metadata`); Petastorm need not be installed. Source: the behaviour of petastorm 0.13.1.
"""

from __future__ import annotations

from .codecs import decode
from .metadata import Codec, Field, Index, MetadataError, read_indexes, read_schema

__all__ = ["Codec", "Field", "Index", "MetadataError", "decode", "read_indexes", "read_schema"]
