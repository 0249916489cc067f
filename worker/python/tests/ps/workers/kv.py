"""What ps-lite's own test of key-value apps does, with its numbers: NumPy arrays, or tensors of torch."""

import sys
from collections import deque

import numpy

from elasticrun import ps

KEYS = 10_000


def spread(count):
    """Keys over the ranges of all servers."""
    step = 2**64 // count
    return numpy.array([index * step + index % 7 for index in range(count)], numpy.uint64)


def work(node, kind):
    kv = ps.KvWorker("float32")
    keys = spread(KEYS)
    values = (numpy.arange(KEYS) % 100).astype(numpy.float32) * numpy.float32(0.5)
    out = numpy.empty(KEYS, numpy.float32)
    if kind == "torch":
        import torch

        # Keys of torch have a sign.
        keys = torch.from_numpy((keys // numpy.uint64(2)).astype(numpy.int64))
        values, out = torch.from_numpy(values), torch.from_numpy(out)
    called = []
    handles = deque()
    for _ in range(50):
        handles.append(kv.push(keys, values, callback=called.append))
        if len(handles) == 10:
            handles.popleft().wait()
    for handle in handles:
        handle.wait()
    assert called == [None] * 50, called
    first = kv.pull(keys).wait()
    assert type(first) is type(values) and tuple(first.shape) == (KEYS,), first
    for _ in range(50):
        assert kv.push_pull(keys, values, out).wait() is out
    node.barrier(ps.WORKER_GROUP)
    result = kv.pull(keys, out).wait()
    assert result is out
    error = float(abs(numpy.asarray(result) - numpy.asarray(values) * 100 * node.num_workers).sum())
    print(f"error {error}")
    assert error == 0


def main():
    kind = sys.argv[1]
    with ps.start() as node:
        if node.role == "server":
            ps.KvServer("float32")
        elif node.role == "worker":
            work(node, kind)


main()
