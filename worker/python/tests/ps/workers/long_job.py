"""A job that takes longer than an answer may: servers and the scheduler wait in finalize for it."""

import threading

from elasticrun import ps

with ps.start() as node:
    if node.role == "server":
        ps.KvServer()
    elif node.role == "worker":
        kv = ps.KvWorker()
        # Longer than the request timeout: nothing else tells the two waits apart.
        threading.Event().wait(3)
        kv.push([1], [1.0]).wait()
        print("late")
