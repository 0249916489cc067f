"""Process sets, for modules with Horovod's interface. The only process set is that of all ranks."""

from __future__ import annotations

from typing import NoReturn

from .lifecycle import rank, size

__all__ = [
    "ProcessSet",
    "add_process_set",
    "global_process_set",
    "remove_process_set",
    "require_global",
]


class ProcessSet:
    """Refused: constructing one raises NotImplementedError. The only instance is :data:`global_process_set`."""

    def __init__(self, *_: object) -> None:
        _refuse()


class _GlobalProcessSet(ProcessSet):
    """All ranks of the round."""

    process_set_id = 0

    def __init__(self) -> None:
        # The base class refuses its construction.
        pass

    @property
    def ranks(self) -> list[int]:
        """All ranks."""
        return list(range(size()))

    def size(self) -> int:
        """Workers of the round."""
        return size()

    def rank(self) -> int:
        """This worker's rank."""
        return rank()

    def included(self) -> bool:
        """True."""
        return True

    def __repr__(self) -> str:
        return "global_process_set"


#: All ranks of the round, the default of each ``process_set``.
global_process_set = _GlobalProcessSet()


def require_global(process_set: object) -> None:
    """Raises NotImplementedError for any process set but the global one."""
    if process_set is not global_process_set and process_set is not None:
        _refuse()


def add_process_set(process_set: object) -> NoReturn:
    """Refused: raises NotImplementedError."""
    _refuse()


def remove_process_set(process_set: object) -> NoReturn:
    """Refused: raises NotImplementedError."""
    _refuse()


def _refuse() -> NoReturn:
    raise NotImplementedError("process sets are not offered: leave process_set out (all ranks take part)")
