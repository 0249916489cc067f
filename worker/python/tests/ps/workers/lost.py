"""A worker that waits for a server that is killed."""

import threading

from elasticrun import ps

node = ps.start()
if node.role == "server":
    ps.KvServer("float32", lambda request: ps.LATER)
if node.role != "worker":
    threading.Event().wait()
kv = ps.KvWorker("float32")
handle = kv.pull([1])
print("waits", flush=True)
try:
    handle.wait()
except ps.PsError as error:
    print(f"{type(error).__name__}: {error}")
