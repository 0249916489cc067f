"""What travels between the caller of ``elasticrun.run`` and its workers: the call, and what comes back.

A value is pickled by reference where possible: its classes and functions are then those of modules that the other side
imports. What is defined in a notebook, or in a function, can only travel by value, which needs a module with the interface
of cloudpickle. The caller chooses that module, since it must load what comes back.
"""

from __future__ import annotations

import importlib
import json
import pickle
from dataclasses import dataclass
from typing import Any

__all__ = ["VARIABLE", "Address", "Call", "Failure", "Progress", "Result", "pickled"]

#: The environment variable with the :class:`Address`. Workers do not inherit variables with the prefix ELASTICRUN_.
VARIABLE = "_ELASTICRUN_CALL"


@dataclass(frozen=True)
class Address:
    """Address of the caller: several hosts, of which a worker may reach any, and one port."""

    hosts: list[str]
    port: int

    def encode(self) -> str:
        """The value of the environment variable."""
        return json.dumps([self.hosts, self.port])

    @classmethod
    def decode(cls, text: str) -> Address:
        """Parses the value of the environment variable."""
        hosts, port = json.loads(text)
        return cls(hosts, port)


@dataclass(frozen=True)
class Call:
    """A function call, serialised for the workers.

    Attributes:
        path: the module search path of the caller.
        prepare: data of :mod:`multiprocessing` that imports the caller's main module, if the function is defined there.
        call: pickle of function, arguments and keyword arguments.
        by_value: name of the module that pickles by value. None: the caller has none.
    """

    path: list[str]
    prepare: dict[str, Any] | None
    call: bytes
    by_value: str | None = None


@dataclass(frozen=True)
class Result:
    """The pickled return value of the function, and the round, rank and size of the worker that returned it."""

    round: int
    rank: int
    size: int
    value: bytes


@dataclass(frozen=True)
class Failure:
    """The exception of the function, with round and rank of the worker that raised it.

    Attributes:
        round: its round. 0: it had joined none.
        rank: its rank.
        traceback: its traceback, as text.
        error: its pickle. None: it cannot be pickled.
    """

    round: int
    rank: int
    traceback: str
    error: bytes | None


@dataclass(frozen=True)
class Progress:
    """A pickled value that the function sent before its end."""

    value: bytes


def pickled(value: object, by_value: str | None) -> bytes:
    """Pickles ``value`` by reference, else with the module ``by_value``.

    Raises:
        Exception: neither can. Many types are raised.
    """
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        if by_value is None:
            raise
        data: bytes = importlib.import_module(by_value).dumps(value)
        return data
