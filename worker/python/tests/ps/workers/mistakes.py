"""Each mistake has its error, in one line that says what to do."""

import numpy
import torch

from elasticrun import ps
from elasticrun.errors import ElasticrunError


def raises(kind, text, call):
    try:
        result = call()
        if isinstance(result, ps.Handle):
            result.wait()
    except kind as error:
        assert text in str(error), (text, str(error))
        assert "\n" not in str(error)
        if issubclass(kind, ps.PsError):
            assert isinstance(error, ElasticrunError)
        return
    raise AssertionError(f"no error with {text!r}")


def work(node):
    kv = ps.KvWorker("float32")
    one = [1.0]
    raises(
        ps.PsBadRequest,
        "key 3 at position 2 is less than the key before it: sort the keys",
        lambda: kv.push([1, 5, 3], [1] * 3),
    )
    raises(ps.PsBadRequest, "key 5 at position 2 is there twice: add up its values before", lambda: kv.pull([1, 5, 5]))
    raises(
        ps.PsBadRequest, "the lens add up to 4 but there are 5 values", lambda: kv.push([1, 2], [1] * 5, lens=[1, 3])
    )
    raises(
        ps.PsBadRequest, "1 lens for 2 keys: give one len for each key, or none", lambda: kv.push([1, 2], one, lens=[1])
    )
    raises(
        ps.PsBadRequest, "5 values cannot be divided evenly among 2 keys: give lens", lambda: kv.push([1, 2], [1] * 5)
    )
    raises(ps.PsBadRequest, "no keys: a push or pull needs at least one", lambda: kv.pull([]))
    raises(
        ps.PsRefused, "key 77 was never pushed: say how many values it has to get zeros", lambda: kv.pull_mixed([77])
    )
    raises(TypeError, "values are float64, and this app has float32: convert them", lambda: kv.push([1], numpy.ones(1)))
    raises(TypeError, "values are float64, and this app has float32", lambda: kv.push([1], torch.ones(1).double()))
    raises(TypeError, "keys are float64: pass integers", lambda: kv.pull([1.5]))
    raises(TypeError, "keys are torch.float32: pass integers", lambda: kv.pull(torch.ones(1)))
    raises(ValueError, "key -1 is negative: keys are from 0 to 2**64 - 1", lambda: kv.pull([-1]))
    raises(ValueError, "key -2 is negative", lambda: kv.pull(torch.tensor([1, -2])))
    raises(TypeError, "out is float64", lambda: kv.pull([1], numpy.ones(1)))
    raises(TypeError, "out is a list: pass a NumPy array or a tensor of torch", lambda: kv.pull([1], [1.0]))
    raises(ValueError, "out has 2 elements and the result has 1", lambda: kv.pull([1], torch.ones(2)))
    raises(ValueError, "out is not a contiguous array", lambda: kv.pull([1, 2], numpy.ones(4, numpy.float32)[::2]))
    raises(ValueError, "out is not a contiguous tensor", lambda: kv.pull([1, 2], torch.ones(4)[::2]))
    same = numpy.ones(1, numpy.float32)
    raises(ValueError, "out is the same memory as values", lambda: kv.push_pull([1], same, same))
    raises(TypeError, "'complex64' is no type of values", lambda: ps.KvWorker("complex64"))
    raises(ps.PsConfigError, "app 0 with customer 0 exists in this process already", lambda: ps.KvWorker("float32"))
    raises(ValueError, "group 9: expected a sum of 1, 2 and 4", lambda: node.barrier(9))

    raises(
        ps.PsRefused,
        "server 0 refused the request: its values are f32, not f64",
        lambda: ps.KvWorker("float64", customer=1).push([1], one),
    )
    raises(
        ps.PsRefused, "no handler for app 9 was registered within", lambda: ps.KvWorker("float32", app=9).push([1], one)
    )

    bad = ps.KvWorker("float32", app=1)
    raises(
        ps.PsRefused, "server 0 refused the request: ZeroDivisionError: division by zero", lambda: bad.push([1], one)
    )
    raises(ps.PsRefused, "TypeError: values are float64, and this app has float32", lambda: bad.pull([1], cmd=1))
    raises(
        ps.PsRefused, "ValueError: the handler gave 2 values and the request asks for 1", lambda: bad.pull([1], cmd=2)
    )
    raises(ps.PsRefused, "server 0 refused the request: no", lambda: bad.pull([1], cmd=3))
    called = []
    raises(ps.PsRefused, "division by zero", lambda: bad.push([1], one, callback=called.append))
    assert len(called) == 1 and isinstance(called[0], ps.PsRefused), called

    app = ps.SimpleApp()
    raises(
        ps.PsRefused, "server 0 refused the request: LookupError: nothing", lambda: app.request(1, b"", ps.server_id(0))
    )
    raises(ValueError, "0: no group (1 to 7)", lambda: app.request(1, b"", 0))
    raises(ps.PsConfigError, "this job has no server 7", lambda: app.request(1, b"", ps.server_id(7)))

    slow = bad.pull([1], cmd=4)
    raises(ps.PsTimeout, "no answer of server 0 to request", lambda: slow.wait(0.2))
    print("all mistakes")


def handle(request):
    if request.cmd == 1:
        return numpy.ones(1)
    if request.cmd == 2:
        return [1.0, 2.0]
    if request.cmd == 3:
        request.refuse("no")
        return ps.LATER
    if request.cmd == 4:
        return ps.LATER
    return 1 / 0


def main():
    raises(ps.PsError, "no node of the parameter server: call elasticrun.ps.start() first", lambda: ps.KvWorker())
    raises(
        ps.PsConfigError,
        "PS_DROP_MSG=many: expected a percentage from 0 to 99",
        lambda: ps.start({**VARIABLES, "PS_DROP_MSG": "many"}),
    )
    raises(ps.PsConfigError, "the variable DMLC_ROLE is not set", lambda: ps.start({}))
    node = ps.start()
    if node.role == "server":
        ps.KvServer("float32")
        ps.KvServer("float32", handle, app=1)

        def fail(request):
            raise LookupError("nothing")

        ps.SimpleApp(fail)
    elif node.role == "worker":
        work(node)
    node.finalize()
    raises(ps.PsFinalized, "this node has been finalized", node.barrier)


VARIABLES = {
    "DMLC_ROLE": "scheduler",
    "DMLC_NUM_SERVER": "1",
    "DMLC_NUM_WORKER": "1",
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_PS_ROOT_PORT": "1",
}
main()
