"""Tells the agent that this process fails, when an error ends it.

An interpreter with a framework in it takes a second from its last line to its end. Survivors do not wait for that.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

from . import _native
from .errors import ElasticrunError


def watch() -> None:
    """From now on an error that nobody catches is told, after it was printed."""
    owner, print_error = os.getpid(), sys.excepthook

    def failed(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        print_error(kind, error, traceback)
        if os.getpid() != owner:
            return
        try:
            _native.fail()
        except (ElasticrunError, RuntimeError):
            # The end of the process will tell.
            pass

    sys.excepthook = failed
