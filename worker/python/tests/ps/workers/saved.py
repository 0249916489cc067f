"""Elastic servers whose values are saved: pushes, has a snapshot taken, and prints the sum of a key."""

import sys

from elasticrun import ps
from elasticrun.errors import PsError

with ps.start() as node:
    if node.role == "server":
        ps.KvServer("float64")
    elif node.role == "worker":
        kv = ps.KvWorker("float64")
        kv.push([1, 2**63], [1.5, 2.5]).wait()
        try:
            print("snapshot", node.snapshot())
        except PsError as error:
            print("no snapshot:", error)
        print("sums", kv.pull([1, 2**63]).wait().tolist())
        sys.stdout.flush()
