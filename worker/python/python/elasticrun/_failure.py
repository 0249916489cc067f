"""Tells the agent that this process fails, when an error ends it.

An interpreter with a framework in it takes a second from its last line to its end. Survivors do not wait for that.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

from . import _native
from .errors import ElasticrunError, Stopped, WorkersFailed


def watch() -> None:
    """From now on an error that nobody catches is told, after it was printed."""
    owner, print_error = os.getpid(), sys.excepthook

    def failed(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, Stopped):
            # The job goes on without this process, or is over: no failure of a script that has no elastic.run.
            print(f"elasticrun: {error}", file=sys.stderr, flush=True)
            return
        print_error(kind, error, traceback)
        if os.getpid() != owner:
            return
        try:
            # Its cause is another worker's, which is to be heard before this one.
            _native.fail(isinstance(error, WorkersFailed))
        except (ElasticrunError, RuntimeError):
            # The end of the process will tell.
            pass

    sys.excepthook = failed
