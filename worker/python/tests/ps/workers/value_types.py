"""Each type of values, lens, tensors as results, and memory that is shared."""

import gc
import weakref

import numpy
import torch

from elasticrun import ps

TYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int8", "uint16"]
#: Keys on both servers, all of which int64 can hold with a sign of 64 bits.
KEYS = [1, 2**60, 2**63 - 1]


def each_type(number, name):
    kv = ps.KvWorker(name, app=number)
    kv.push(torch.tensor(KEYS), torch.tensor([1, 2, 3], dtype=getattr(torch, name))).wait()
    pulled = kv.pull(torch.tensor(KEYS)).wait()
    assert pulled.dtype == getattr(torch, name)
    assert pulled.tolist() == [1, 2, 3], (name, pulled)
    if name != "bfloat16":
        pulled = kv.pull(KEYS).wait()
        assert pulled.dtype == name and pulled.tolist() == [1, 2, 3], (name, pulled)


def shapes(kv):
    keys = numpy.array([5, 6, 2**64 - 1], numpy.uint64)
    wide = kv.push_pull(keys, numpy.arange(12.0).reshape(3, 4)).wait()
    assert wide.tolist() == numpy.arange(12.0).reshape(3, 4).tolist()
    assert kv.pull(keys, per_key=4).wait().shape == (3, 4)
    values, lens = kv.pull_mixed(keys).wait()
    assert values.tolist() == list(range(12)) and lens.tolist() == [4, 4, 4]
    out = torch.zeros(3, 4, dtype=torch.float64)
    assert kv.pull(keys, out, per_key=4).wait() is out and out.sum() == 66
    # Lens.
    keys = [10, 11, 2**63 + 1]
    lens = [1, 0, 3]
    kv.push(keys, [1.0, 2.0, 3.0, 4.0], lens=lens).wait()
    assert kv.pull(keys, lens=lens).wait().tolist() == [1, 2, 3, 4]
    assert kv.push_pull(keys, [1.0, 1.0, 1.0, 1.0], lens=torch.tensor(lens)).wait().tolist() == [2, 3, 4, 5]
    values, found = kv.pull_mixed(keys).wait()
    assert values.tolist() == [2, 3, 4, 5] and found.tolist() == lens
    assert kv.pull([20, 21]).wait().tolist() == [0, 0]
    # What is not contiguous is copied.
    strided = numpy.arange(8.0)[::2]
    kv.push(numpy.arange(30, 38, dtype=numpy.int32)[::2], strided).wait()
    assert kv.pull([30, 32, 34, 36]).wait().tolist() == strided.tolist()
    leaf = torch.ones(2, dtype=torch.float64, requires_grad=True)
    assert kv.push_pull([40, 41], leaf).wait().tolist() == [1, 1]


def memory(kv):
    """Arrays live until their request is completed, and no longer than their handles."""
    keys = numpy.arange(100, 200, dtype=numpy.uint64)
    values = numpy.ones(100)
    gone = weakref.ref(values)
    handle = kv.push(keys, values)
    del values
    handle.wait()
    for _ in range(100):
        # An own request: the next call of the library drops what is no longer used.
        kv.pull([1]).wait()
        gc.collect()
        if gone() is None:
            break
    assert gone() is None


def main():
    with ps.start() as node:
        for number, name in enumerate(TYPES):
            if node.role == "server":
                ps.KvServer(getattr(torch, name), app=number)
            elif node.role == "worker":
                each_type(number, name)
        if node.role == "server":
            ps.KvServer(numpy.float64, app=99)
        elif node.role == "worker":
            kv = ps.KvWorker(float_type(), app=99)
            assert kv.dtype == "float64"
            shapes(kv)
            memory(kv)
            print("all types")


def float_type():
    return numpy.dtype("float64")


main()
