"""Reports an uncaught exception to the agent before the process exits.

An interpreter that has loaded a framework needs about a second to exit. Survivors do not wait for that.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

from . import _native
from .errors import ElasticrunError, Stopped, WorkerEnded, WorkersFailed


def watch() -> None:
    """Installs an exception hook that prints an uncaught exception and then reports it to the agent."""
    owner, print_error = os.getpid(), sys.excepthook

    def failed(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, Stopped):
            # The job continues without this process or is over. That is not a failure of a script without elastic.run.
            print(f"elasticrun: {error}", file=sys.stderr, flush=True)
            return
        print_error(kind, error, traceback)
        if os.getpid() != owner:
            return
        try:
            # A WorkersFailed has its cause in another worker, whose report takes precedence. A worker that ended reports none.
            _native.fail(isinstance(error, WorkersFailed) and not isinstance(error, WorkerEnded))
        except (ElasticrunError, RuntimeError):
            # The agent detects the exit of the process.
            pass

    sys.excepthook = failed
