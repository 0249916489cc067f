"""One survivor that rebuilds its gloo group, driven by lines on stdin.

bench_recovery starts one process per rank: `recovery_gloo.py RANK SIZE PORT`. For each line it destroys the
process group, creates a new one with the line as prefix of the store, sums one number and prints `ok`.
"""

import datetime
import os
import sys

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist


def main() -> None:
    rank, size, port = (int(word) for word in sys.argv[1:4])
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=60)
    store = dist.TCPStore("127.0.0.1", port, size, is_master=rank == 0, timeout=timeout)

    def init(prefix: str) -> None:
        dist.init_process_group(
            "gloo", store=dist.PrefixStore(prefix, store), rank=rank, world_size=size, timeout=timeout
        )
        dist.all_reduce(torch.ones(1))

    init("first")
    print(f"ready torch {torch.__version__}", flush=True)
    for line in sys.stdin:
        dist.destroy_process_group()
        init(line.strip())
        print("ok", flush=True)
    dist.destroy_process_group()


main()
