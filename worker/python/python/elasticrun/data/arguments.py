"""Checks arguments of data sets. Errors name the argument."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import DataError

__all__ = ["count", "files", "number_of_bytes", "number_of_stripes", "one_of", "rows_of_a_step", "storage"]

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}

#: Stripes of ``order="deterministic"`` if none are given: ``elasticrun_ledger::STRIPES``.
_STRIPES = 5040


def rows_of_a_step(deterministic: bool, batch_size: int | None, global_batch_size: int | None) -> int:
    """The rows of a step: of this worker, or of all workers in order "deterministic".

    Raises:
        TypeError: the argument does not belong to the order.
        ValueError: it is not at least 1.
    """
    name, other = ("global_batch_size", "batch_size") if deterministic else ("batch_size", "global_batch_size")
    rows, unused = (global_batch_size, batch_size) if deterministic else (batch_size, global_batch_size)
    order = "deterministic" if deterministic else "local"
    whose = "all workers together" if deterministic else "this worker"
    if rows is None or unused is not None:
        raise TypeError(f"order={order!r} takes {name}, the rows of {whose} at each step, and no {other}")
    if not 1 <= rows < 1 << 32:
        raise ValueError(f"{name}={rows}: must be at least 1")
    return rows


def number_of_stripes(stripes: int | None, lanes: int | None) -> int:
    """``stripes``, or ``lanes``, which is its former name.

    Raises:
        TypeError: both are given.
        ValueError: the number is out of range.
    """
    if stripes is not None and lanes is not None:
        raise TypeError("stripes and lanes are two names of one option: pass stripes only")
    given = lanes if stripes is None else stripes
    number = _STRIPES if given is None else given
    if not 1 <= number < 1 << 32:
        raise ValueError(f"stripes={number}: must be from 1 to 2**32 - 1, and not fewer than workers")
    return number


def count(name: str, number: int) -> int:
    """A number of things, which may be 0.

    Raises:
        ValueError: it is less than 0.
    """
    if number < 0:
        raise ValueError(f"{name}={number}: must be at least 0")
    return number


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raises ValueError unless the value is allowed."""
    if value not in allowed:
        choices = " or ".join(repr(choice) for choice in allowed)
        raise ValueError(f"{name}={value!r}: must be {choices}")


def number_of_bytes(name: str, amount: int | str) -> int:
    """Bytes, from a number or from text such as "256 MiB".

    Raises:
        ValueError: it is neither, or not more than 0.
    """
    if isinstance(amount, int):
        number, unit = float(amount), ""
    else:
        match = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", amount)
        if match is None or match[2].upper() not in _UNITS:
            raise ValueError(f"{name}={amount!r}: must be a number of bytes, or one with KiB, MiB or GiB")
        number, unit = float(match[1]), match[2].upper()
    if number <= 0:
        raise ValueError(f"{name}={amount!r}: must be more than 0")
    return int(number * _UNITS[unit])


def files(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Paths and addresses, with local patterns replaced by the files that match, in the order of their names.

    Raises:
        DataError: no file matches a pattern.
    """
    found: list[str] = []
    for given in paths:
        path = os.fspath(given)
        if "://" in path or not glob.has_magic(path) or os.path.exists(path):
            found.append(path)
            continue
        matching = sorted(glob.glob(path, recursive=True))
        if not matching:
            raise DataError(f"{path}: no file matches this pattern")
        found += matching
    return found


def storage(options: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Options of an object store as text. No error has a value, which may be a secret.

    Raises:
        TypeError: they are no mapping, or a value has another type.
    """
    if options is None:
        return None
    if not isinstance(options, Mapping):
        raise TypeError("storage_options must be a mapping from names to values")
    found = {}
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, (str, bool, int)):
            kind = type(value).__name__
            raise TypeError(
                f"storage_options: the value of {name!r} is of type {kind}: must be text, a number or a truth value"
            )
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found
