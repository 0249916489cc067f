"""One rank of torch.distributed over gloo, driven by lines on stdin.

bench_collectives starts one process per rank: `collectives_gloo.py RANK SIZE STORE_FILE`. It reads lines
`OPERATION BYTES ITERATIONS`, runs each, and prints the nanoseconds of time and of processor time per iteration.
It ends at end of file.
"""

import os
import sys
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist


def operation(name: str, nbytes: int, size: int):
    """Returns a callable that runs the operation once, on buffers allocated here."""
    elements = nbytes // 4
    if name == "allreduce":
        data = torch.zeros(elements)
        return lambda: dist.all_reduce(data)
    if name == "broadcast":
        data = torch.zeros(elements)
        return lambda: dist.broadcast(data, 0)
    if name == "allgather":
        own = torch.zeros(elements // size)
        whole = torch.zeros(elements // size * size)
        return lambda: dist.all_gather_into_tensor(whole, own)
    raise ValueError(name)


def main() -> None:
    rank, size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size, store=dist.FileStore(store, size))
    print(f"ready torch {torch.__version__}", flush=True)
    prepared = None
    for line in sys.stdin:
        name, nbytes, iterations = line.split()
        if prepared is None or prepared[0] != (name, nbytes):
            prepared = None  # free the buffers before new ones are made
            prepared = ((name, nbytes), operation(name, int(nbytes), size))
            prepared[1]()
        run = prepared[1]
        dist.barrier()
        start, processor = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(int(iterations)):
            run()
        elapsed = (time.perf_counter_ns() - start) // int(iterations)
        processor = (time.process_time_ns() - processor) // int(iterations)
        print(elapsed, processor, flush=True)
    dist.destroy_process_group()


main()
