"""A worker that fails: the others do not wait for it at the end."""

from elasticrun import ps

with ps.start() as node:
    if node.role == "server":
        ps.KvServer()
    elif node.role == "worker":
        raise LookupError("nothing to learn")
