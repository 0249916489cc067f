"""Excludes this package from tracing by torch.compile.

While a compiled DistributedDataParallel runs, torch calls the Python methods of its process group. TorchDynamo would trace these
frames as if they were part of the model.
"""

from __future__ import annotations

import sys

_excluded = False


def exclude() -> None:
    """Makes TorchDynamo skip this package, if it is loaded. It is not imported here, because that takes about a second."""
    global _excluded
    if _excluded:
        return
    add = getattr(sys.modules.get("torch._dynamo.trace_rules"), "add", None)
    if add is not None:
        add(__name__.partition(".")[0])
        _excluded = True
