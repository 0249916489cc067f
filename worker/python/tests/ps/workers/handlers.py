"""A handler in Python that answers at once or later, simple requests, and what a node says about the job."""

import threading

import numpy

from elasticrun import ps


class Mean:
    """Keeps what all workers have pushed, and answers their pulls once all have: a step of synchronous training."""

    def __init__(self, workers):
        self.workers = workers
        self.sum = {}
        self.waiting = []

    def __call__(self, request):
        assert request.keys.dtype == numpy.uint64 and request.is_push and request.is_pull
        assert request.expected.tolist() == request.lens.tolist()
        rows = request.values.reshape(len(request.keys), -1)
        for key, row in zip(request.keys.tolist(), rows, strict=True):
            self.sum[key] = self.sum.get(key, 0) + row
        self.waiting.append(request)
        if len(self.waiting) == self.workers:
            waiting, self.waiting = self.waiting, []
            # On another thread, as a program may want.
            threading.Thread(target=self.answer, args=(waiting,)).start()
        return ps.LATER

    def answer(self, waiting):
        means = {request: [self.sum[key] / self.workers for key in request.keys.tolist()] for request in waiting}
        self.sum = {}
        for request, mean in means.items():
            request.respond(numpy.concatenate(mean).astype(numpy.float32))


def lookup(request):
    """Answers with the lens of its own choice."""
    if not request.is_pull:
        return None
    assert request.expected is None
    lens = [int(key % 3) for key in request.keys]
    return numpy.full(sum(lens), request.cmd, numpy.int64), lens


def work(node):
    kv = ps.KvWorker("float32")
    keys = [7, 2**62, 2**63 + 5]
    for step in range(5):
        mine = numpy.full((3, 2), node.rank + step, numpy.float32)
        mean = kv.push_pull(keys, mine, cmd=step).wait()
        assert (mean == (node.num_workers - 1) / 2 + step).all(), mean
    own = ps.KvWorker("int64", app=3)
    values, lens = own.pull_mixed([4, 5, 2**63 + 7], cmd=-9).wait()
    assert values.tolist() == [-9] * sum(lens.tolist()) and lens.tolist() == [1, 2, (2**63 + 7) % 3]


def main():
    ended = []
    with ps.start(barrier=False) as node:
        node.on_exit(lambda: ended.append(node.id))
        assert node.node_ids(ps.ALL_NODES) == [1, 8, 9, 10, 11]
        assert node.node_ids(ps.SERVER_GROUP) == [ps.server_id(0), ps.server_id(1)]
        assert node.id in node.node_ids(node.id) and node.dead_nodes() == []
        assert {"scheduler": 1, "server": 8 + 2 * node.rank, "worker": 9 + 2 * node.rank}[node.role] == node.id
        asked, answers = [], []

        def on_request(data):
            asked.append((data.head, data.body, data.sender))
            return data.body.upper()

        app = ps.SimpleApp(on_request, lambda data: answers.append((data.sender, data.body)), app=5)
        if node.role == "server":
            ps.KvServer("float32", Mean(node.num_workers))
            ps.KvServer("int64", lookup, app=3)
        elif node.role == "worker":
            work(node)
        elif node.role == "scheduler":
            sent = [app.request(number, b"test", ps.ALL_NODES) for number in range(20)]
            for handle in sent:
                handle.wait()
            assert sorted(answers) == sorted([(id, b"TEST") for id in node.node_ids(ps.ALL_NODES)] * 20)
        node.barrier()
        assert asked == [(number, b"test", ps.SCHEDULER) for number in range(20)], asked
        if node.role == "worker":
            print("handled")
    assert ended == [node.id]


main()
