"""A parameter server: servers keep values by key, and workers push and pull them, each at its own pace.

::

    from elasticrun import ps

    with ps.start() as node:
        if node.role == "server":
            ps.KvServer("float32")
        elif node.role == "worker":
            kv = ps.KvWorker("float32")
            kv.push([1, 3, 5], [0.5, 1.0, 1.5]).wait()
            print(kv.pull([1, 3, 5]).wait())

All processes run the same program. Each is one node, and variables say which: ``DMLC_ROLE`` (scheduler, server or worker),
``DMLC_NUM_SERVER``, ``DMLC_NUM_WORKER``, ``DMLC_PS_ROOT_URI``, ``DMLC_PS_ROOT_PORT`` and others, as those of ps-lite.
docs/parameter-server.md lists them.

Keys and values are NumPy arrays, CPU tensors of torch, or lists. Arrays and tensors are not copied. Waits run without the
GIL, have a limit, and are interrupted by Ctrl-C. This module needs NumPy.
"""

from __future__ import annotations

from ..errors import (
    PsBadRequest,
    PsConfigError,
    PsError,
    PsFinalized,
    PsNodeLost,
    PsRefused,
    PsStartError,
    PsTimeout,
)
from .handle import Handle
from .node import (
    ALL_NODES,
    SCHEDULER,
    SCHEDULER_GROUP,
    SERVER_GROUP,
    WORKER_GROUP,
    Postoffice,
    server_id,
    start,
    worker_id,
)
from .server import LATER, KvServer, Request
from .simple import SimpleApp, SimpleData
from .worker import KvWorker

__all__ = [
    "ALL_NODES",
    "LATER",
    "SCHEDULER",
    "SCHEDULER_GROUP",
    "SERVER_GROUP",
    "WORKER_GROUP",
    "Handle",
    "KvServer",
    "KvWorker",
    "Postoffice",
    "PsBadRequest",
    "PsConfigError",
    "PsError",
    "PsFinalized",
    "PsNodeLost",
    "PsRefused",
    "PsStartError",
    "PsTimeout",
    "Request",
    "SimpleApp",
    "SimpleData",
    "server_id",
    "start",
    "worker_id",
]
