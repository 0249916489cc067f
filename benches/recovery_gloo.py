"""Times how long a raw gloo takes to make its survivors a group again: destroy, init, barrier, in process.

usage: recovery_gloo.py RANKS TRIALS

Prints one number a trial, in milliseconds: from the first rank's start to the last rank's end. The ranks are
processes on loopback over one TCPStore; every trial has a prefix of its own, as elastic jobs need it.
"""

import datetime
import os
import sys
import time

import torch.distributed as dist
import torch.multiprocessing as mp


def rank_main(rank: int, ranks: int, trials: int, port: int, times) -> None:
    timeout = datetime.timedelta(seconds=60)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)
    for trial in range(trials + 1):
        # All begin together, as survivors of one failure do.
        dist.PrefixStore(f"begin{trial}", store).add("ready", 1)
        while int(store.add(f"begin{trial}/ready", 0)) < ranks:
            time.sleep(0.0005)
        began = time.monotonic()
        if trial > 0:
            dist.destroy_process_group()
        dist.init_process_group(
            "gloo", store=dist.PrefixStore(f"round{trial}", store), rank=rank, world_size=ranks, timeout=timeout
        )
        dist.barrier()
        times.put((trial, began, time.monotonic()))


def main() -> None:
    ranks, trials = int(sys.argv[1]), int(sys.argv[2])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    context = mp.get_context("fork")
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    times = context.SimpleQueue()
    processes = [
        context.Process(target=rank_main, args=(rank, ranks, trials, server.port, times)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    spans: dict[int, list[tuple[float, float]]] = {}
    for _ in range(ranks * (trials + 1)):
        trial, began, ended = times.get()
        spans.setdefault(trial, []).append((began, ended))
    for process in processes:
        process.join()
        if process.exitcode != 0:
            sys.exit(f"a rank ended with {process.exitcode}")
    # Trial 0 had nothing to destroy.
    for trial in range(1, trials + 1):
        span = spans[trial]
        print((max(ended for _, ended in span) - min(began for began, _ in span)) * 1e3)


if __name__ == "__main__":
    main()
