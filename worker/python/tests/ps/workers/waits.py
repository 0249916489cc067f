"""Waits: Ctrl-C ends each, and other threads run meanwhile."""

import sys
import threading
import time

import numpy

from elasticrun import ps


def wait(node, kind):
    kv = ps.KvWorker("float32")
    if kind == "answer":
        handle = kv.pull([1])
        print("waits", flush=True)
        handle.wait()
    elif kind == "barrier":
        print("waits", flush=True)
        node.barrier()
    elif kind == "space":
        print("waits", flush=True)
        while True:
            # The handler keeps the receiving thread of the server.
            kv.push([1], numpy.ones(1 << 20, numpy.float32))


def main():
    kind = sys.argv[1]
    node = ps.start()
    if node.role == "server":
        ps.KvServer("float32", lambda request: ps.LATER if request.is_pull else threading.Event().wait())
    if node.role != "worker":
        threading.Event().wait()
    ticks = []

    def tick():
        while True:
            ticks.append(None)
            time.sleep(0.01)

    threading.Thread(target=tick, daemon=True).start()
    try:
        wait(node, kind)
    except KeyboardInterrupt:
        while len(ticks) < 2:
            time.sleep(0.01)
        print("interrupted", flush=True)
        node.finalize(barrier=False)


main()
