"""Parameters of a rendezvous at a free port of this machine."""

from __future__ import annotations

import itertools
import socket
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousParameters

_numbers = itertools.count()


def parameters(**more: Any) -> RendezvousParameters:
    """Those of a run that no other test has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
    values = {"run_id": f"run-{next(_numbers)}", "min_nodes": 1, "max_nodes": 1, **more}
    return RendezvousParameters(backend="elasticrun", endpoint=endpoint, **values)
