"""Measures a rendezvous of many local nodes by the back end elasticrun, compared with torch's c10d.

`benches/python.sh rdzv_torch.py --binary BENCH_NODES [--nodes N...] [--limit SECONDS]`. Prints a table, the ratios first. The last
line is JSON.

A measurement: all nodes join at once; one leaves; the others join again. Each takes last calls of 1 s, which both sides
have. Nodes of elasticrun are those of the library: a connection and two threads each, all in one process with the server, without torch
and Python. Nodes of c10d are forked processes with torch's own handler; the first one serves. So the processor seconds of c10d
include those of Python, which torchrun has with both. A number of nodes that c10d does not finish within the limit has no
result, and c10d is not measured for more nodes.

c10d does not tell its nodes that one has left. They join again when the benchmark says so, and the next round forms once the node
that has left has missed its heartbeats, for 15 s.
"""

import argparse
import json
import multiprocessing
import os
import resource
import socket
import subprocess
import sys
import time

from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

NODES = [4, 16, 64, 128, 512, 1000]


def elasticrun(binary: str, nodes: int, limit: float) -> dict | None:
    try:
        done = subprocess.run([binary, str(nodes)], capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        return None
    return json.loads(done.stdout)


def c10d_node(number: int, nodes: int, port: int, begin, again, joined) -> None:
    """A node: joins, and unless it is the one that leaves, joins again."""
    params = RendezvousParameters(
        backend="c10d", endpoint=f"127.0.0.1:{port}", run_id="bench", min_nodes=nodes - 1, max_nodes=nodes,
        is_host=number == 0, last_call_timeout=1, read_timeout=600,
    )  # fmt: skip
    handler = get_rendezvous_handler(params)
    joined.put(("ready", cpu()))
    begin.wait()
    size = handler.next_rendezvous().world_size
    joined.put((size, cpu()))
    again.wait()
    if number < nodes - 1:
        size = handler.next_rendezvous().world_size
        joined.put((size, cpu()))
        # The node that serves stays until all are done.
        again.wait()
    os._exit(0)


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def collect(joined, count: int, deadline: float) -> list | None:
    """So many messages of nodes, or None after the deadline."""
    messages = []
    while len(messages) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        try:
            messages.append(joined.get(timeout=left))
        except Exception:
            return None
    return messages


def c10d(nodes: int, limit: float) -> dict | None:
    fork = multiprocessing.get_context("fork")
    begin, again, joined = fork.Event(), fork.Barrier(nodes + 1), fork.Queue()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [
        fork.Process(target=c10d_node, args=(number, nodes, port, begin, again, joined), daemon=True)
        for number in range(nodes)
    ]
    deadline = time.monotonic() + limit
    try:
        for process in processes:
            process.start()
        ready = collect(joined, nodes, deadline)
        if ready is None:
            return None
        began = time.monotonic()
        begin.set()
        first = collect(joined, nodes, deadline)
        if first is None:
            return None
        join = time.monotonic() - began
        began = time.monotonic()
        # One of them ends now. The others join again.
        again.wait(max(1.0, deadline - began))
        second = collect(joined, nodes - 1, deadline)
        if second is None:
            return None
        rejoin = time.monotonic() - began
        spent = [sum(used for _, used in messages) for messages in (ready, first, second)]
        return {
            "nodes": nodes,
            "join_s": round(join, 3),
            "join_cpu_s": round(spent[1] - spent[0], 3),
            "rejoin_s": round(rejoin, 3),
            "rejoin_cpu_s": round(spent[2] - spent[1] * (nodes - 1) / nodes, 3),
            "sizes": [first[0][0], second[0][0]],
        }
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


def ratio(ours: dict | None, theirs: dict | None, key: str) -> str:
    if ours is None or theirs is None or not ours[key]:
        return "-"
    return f"{theirs[key] / ours[key]:.1f} x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--nodes", type=int, nargs="*", default=NODES)
    parser.add_argument("--limit", type=float, default=300)
    options = parser.parse_args()
    results = []
    keys = ("join_s", "rejoin_s", "join_cpu_s", "rejoin_cpu_s")
    print(f"{'nodes':>6} " + " ".join(f"{'c10d / ours: ' + key:>26}" for key in keys))
    c10d_ends = True
    for nodes in options.nodes:
        ours = elasticrun(options.binary, nodes, options.limit)
        theirs = c10d(nodes, options.limit) if c10d_ends else None
        c10d_ends = theirs is not None
        print(f"{nodes:6} " + " ".join(f"{ratio(ours, theirs, key):>26}" for key in keys))
        print(f"       elasticrun {ours}\n       c10d       {theirs}", flush=True)
        results.append({"nodes": nodes, "elasticrun": ours, "c10d": theirs})
    print(json.dumps({"rdzv_torch": results}))


main()
