"""torch.compile leaves our own functions alone.

While a compiled DistributedDataParallel runs, torch calls the methods of its process group, which are Python, and
TorchDynamo would take these frames apart as if they were part of the model.
"""

from __future__ import annotations

import sys

_kept_out = False


def keep_out() -> None:
    """Has TorchDynamo skip this package. Does nothing as long as nothing has imported it: that takes a second."""
    global _kept_out
    if _kept_out:
        return
    add = getattr(sys.modules.get("torch._dynamo.trace_rules"), "add", None)
    if add is not None:
        add(__name__.partition(".")[0])
        _kept_out = True
